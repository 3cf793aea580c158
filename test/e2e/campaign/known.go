package campaign

import (
	"maps"
	"slices"
	"strings"
)

// This file lists the failures that the present pipeline is known to have where entries share a resource, and how a failure is
// recognized as one of them. A corrected pipeline empties the list. Every other failure fails the campaign.

// knownFailure is a defect of the present pipeline. A problem of a seed is this defect if it breaks one of the rules, and if each
// item of needs is among what the seed did.
type knownFailure struct {
	name  string
	says  string   // what consumers see
	rules []string // of the verdict on entries: what stands between the brackets
	needs [][]string
	// repeats: only where delivery is not exactly once. The second sink's is.
	repeats bool
}

// What a seed can do to the configuration, beside its faults: see [circumstances].
const (
	objectsMove       = "objects move between entries"
	collectionsEdited = "selectors or metadataOnly edited"
	editedBack        = "selectors or metadataOnly edited back"
	filterEdited      = "filter edited"
	typesEdited       = "types edited"
	bridgeKilled      = "bridge ended and started"
	exactlyOnce       = "exactly once"
	notExactlyOnce    = "not exactly once"
)

var knownFailures = []knownFailure{
	{
		name:  "moved behind a list",
		says:  "An object moves from one entry to another, and the entry that lost it lists: after a 410, after an edit, or because a restart has interrupted its list. It looks for the object's last body while the other entry publishes the object, and then publishes it as deleted.",
		rules: []string{"copy taken", "union taken"},
		needs: [][]string{{objectsMove}, append(causes("expired"), filterEdited, collectionsEdited, bridgeKilled)},
	},
	{
		name:  "edited back",
		says:  "A selector or metadataOnly of an entry is edited and edited back before the new list has ended. Objects that the configuration selected all the time are published as deleted.",
		rules: []string{"living", "copy ended", "copy taken", "union ended", "union taken"},
		needs: [][]string{{editedBack}},
	},
	{
		name:  "ended after synced",
		says:  "An edit begins a new collection, which takes objects over without an event, and is edited back. Objects that have left in the meantime are published as deleted when the new collection ends, after the synced of the collection that consumers know them by.",
		rules: []string{"copy held"},
		needs: [][]string{{editedBack}},
	},
	{
		name: "new collection after a restore",
		says: "etcd is restored from a backup, and a collection begins later: after an edit, or when a namespace returns. Its epoch is 1 again: ids come twice, and consumers that follow the rule ignore its events.",
		rules: []string{
			"once", "copy missing", "copy taken", "copy ended", "copy stale", "copy held",
			"union missing", "union taken", "union ended", "union stale", "union held",
		},
		needs: [][]string{{"etcd restored"}, {collectionsEdited, "namespace leaves"}},
	},
	{
		name:    "ended at an older version",
		says:    "The bridge is killed when an event is on the bus and not in the checkpoint. Then the CRD is removed, or an edit drops the object: its deletion carries an older version than the event, so consumers ignore it and keep the object.",
		rules:   []string{"copy held", "union held"},
		needs:   [][]string{{bridgeKilled}, {"entries' CRD", collectionsEdited}},
		repeats: true,
	},
}

// Known returns the name of the known failure that each problem of a result is, "" where there is none.
func (r Result) Known() []string {
	names := make([]string, len(r.Problems))
	for i, p := range r.Problems {
		for _, k := range knownFailures {
			if k.fits(p, r) {
				names[i] = k.name
				break
			}
		}
	}
	return names
}

// OnlyKnown reports whether a result has problems, and each of them is a known failure.
func (r Result) OnlyKnown() bool {
	return len(r.Problems) > 0 && !slices.Contains(r.Known(), "")
}

// KnownFailures returns what is said of each known failure, by its name.
func KnownFailures() map[string]string {
	all := map[string]string{}
	for _, k := range knownFailures {
		all[k.name] = k.says
	}
	return all
}

func (k knownFailure) fits(problem string, r Result) bool {
	rule, rest, _ := strings.Cut(strings.TrimPrefix(problem, "["), "] ")
	first, second := strings.HasPrefix(rest, "first sink: "), strings.HasPrefix(rest, "second sink: ")
	pair, _ := FindPair(r.Pair)
	switch {
	case !first && !second, !slices.Contains(k.rules, rule), k.repeats && (second || pair.exact()):
		return false
	}
	for _, group := range k.needs {
		one := slices.ContainsFunc(group, func(need string) bool {
			return slices.ContainsFunc(r.Did, func(d string) bool { return strings.Contains(d, need) })
		})
		if !one {
			return false
		}
	}
	return true
}

// circumstances are what a seed did, each once: the names of its faults, and what its edits changed.
func (n *nemesis) circumstances() []string {
	did := map[string]bool{}
	for _, h := range n.happened {
		did[h.name] = true
	}
	did[bridgeKilled] = len(n.processes) > n.replicas
	if n.gadgets != nil {
		changes(n.gadgets.editions, did)
	}
	maps.DeleteFunc(did, func(_ string, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(did))
}

// changes enters what a sequence of editions changes.
func changes(editions []edition, did map[string]bool) {
	for i, e := range editions {
		if e.movable() {
			did[objectsMove] = true
		}
		if i == 0 {
			continue
		}
		for j, one := range e.entries {
			if j >= len(editions[i-1].entries) {
				break
			}
			was := editions[i-1].entries[j]
			did[filterEdited] = did[filterEdited] || one.filter != was.filter
			did[typesEdited] = did[typesEdited] || !slices.Equal(one.types, was.types)
		}
		if e.selection() == editions[i-1].selection() {
			continue
		}
		did[collectionsEdited] = true
		if slices.ContainsFunc(editions[:i-1], func(former edition) bool { return former.selection() == e.selection() }) {
			did[editedBack] = true
		}
	}
}
