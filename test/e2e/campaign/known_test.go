package campaign

import (
	"slices"
	"testing"
	"time"
)

// A failure is known only by the rule that it breaks and by what the seed did. Without either, and of any other sink or rule, it is not.
func TestKnown(t *testing.T) {
	const takenFromFirst = "[union taken] first sink: 3 objects: n/a (u): 1=a"
	did := []string{"entries' history forgotten (410)", objectsMove}
	for name, c := range map[string]struct {
		problems []string
		did      []string
		known    bool
	}{
		"the rule and what it needs":  {[]string{takenFromFirst}, did, true},
		"no history is forgotten":     {[]string{takenFromFirst}, []string{objectsMove, "objects relabelled"}, false},
		"no object can move":          {[]string{takenFromFirst}, did[:1], false},
		"another rule":                {[]string{"[race] process 0: see its log"}, did, false},
		"missing for another reason":  {[]string{"[union missing] first sink: 3 objects: n/a (u): 1=a"}, did, false},
		"a rule of other resources":   {[]string{"[state] first sink: n/a exists"}, did, false},
		"one problem more, not known": {[]string{takenFromFirst, "[leak] first sink: the value of a Secret"}, did, false},
		"no problem":                  {nil, did, false},
	} {
		r := Result{Pair: "nats-eo/nats", Problems: c.problems, Did: c.did}
		if r.OnlyKnown() != c.known {
			t.Errorf("%s: %v, want known %t", name, r.Known(), c.known)
		}
	}
}

// A known failure of delivery that is not exactly once is none of a sink whose delivery is.
func TestKnownByDelivery(t *testing.T) {
	did := []string{bridgeKilled, "entries' CRD removed and made again"}
	for _, c := range []struct {
		pair, sink string
		known      bool
	}{
		{"nats-alo/file", "first", true},
		{"nats-alo/file", "second", false},
		{"nats-eo/nats", "first", false},
		{"stdout/file", "first", true},
	} {
		r := Result{Pair: c.pair, Problems: []string{"[union held] " + c.sink + " sink: 1 objects: n/a (u): 1=a"}, Did: did}
		if r.OnlyKnown() != c.known {
			t.Errorf("%s, %s sink: %v, want known %t", c.pair, c.sink, r.Known(), c.known)
		}
	}
}

// Each known failure says what consumers see, names rules of the verdict, and needs something that a seed can do.
func TestKnownFailuresAreWhole(t *testing.T) {
	rules := []string{"copy missing", "copy taken", "copy ended", "copy stale", "copy held", "union missing", "union taken", "union ended", "union stale", "union held", "living", "invented", "once", "order", "cause", "declared", "blocked"}
	names := map[string]bool{}
	for _, k := range knownFailures {
		if names[k.name] || k.says == "" || len(k.rules) == 0 || len(k.needs) == 0 {
			t.Errorf("%+v", k)
		}
		names[k.name] = true
		for _, rule := range k.rules {
			if !slices.Contains(rules, rule) {
				t.Errorf("%s: there is no rule %q", k.name, rule)
			}
		}
	}
}

func TestChanges(t *testing.T) {
	a, b := entry{by: byLabel, of: []string{"a"}}, entry{by: byLabel, of: []string{"b"}}
	filtered, typed, short := a, a, a
	filtered.filter, typed.types, short.metadata = true, []string{"added"}, true
	for name, c := range map[string]struct {
		entries [][]entry
		want    []string
	}{
		"one entry":          {[][]entry{{a}}, nil},
		"two entries":        {[][]entry{{a, b}}, []string{objectsMove}},
		"another selector":   {[][]entry{{a}, {b}}, []string{collectionsEdited}},
		"edited back":        {[][]entry{{a}, {b}, {a}}, []string{collectionsEdited, editedBack}},
		"metadataOnly":       {[][]entry{{a}, {short}, {a}}, []string{collectionsEdited, editedBack}},
		"a filter":           {[][]entry{{a}, {filtered}}, []string{filterEdited}},
		"types":              {[][]entry{{a}, {typed}}, []string{typesEdited}},
		"the same once more": {[][]entry{{a}, {a}, {a}}, nil},
	} {
		var editions []edition
		for _, entries := range c.entries {
			editions = append(editions, edition{at: time.Now(), entries: entries})
		}
		did := map[string]bool{}
		changes(editions, did)
		for _, what := range []string{objectsMove, collectionsEdited, editedBack, filterEdited, typesEdited} {
			if did[what] != slices.Contains(c.want, what) {
				t.Errorf("%s: %q is %t", name, what, did[what])
			}
		}
	}
}
