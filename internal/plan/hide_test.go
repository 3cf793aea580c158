package plan

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func ids(p *Plan) (all []string) {
	for i := range p.Collections {
		all = append(all, p.Collections[i].ID())
	}
	return all
}

// A rule with a singular or short name of a resource hides nothing. So the resource is not published, by no entry.
func TestRulesNeedThePlural(t *testing.T) {
	catalog := ordinary("backups.v1.velero.io")
	for _, text := range []string{"backup", "ba", "BA", "backup.velero.io", "ba.velero.io"} {
		for _, resource := range []string{"backups", "ba", "backups.velero.io", "*.velero.io", "*.*"} {
			p := Make([]Entry{{Resource: resource, Redacted: []string{text}}, {Resource: "*.*", Name: "other", Redacted: []string{text}}}, nil, catalog, labelled(nil))
			if slices.ContainsFunc(ids(&p), func(id string) bool { return strings.HasPrefix(id, "backups.") }) {
				t.Errorf("%s with a rule for %s: the plan has %q", resource, text, ids(&p))
			}
			if err := p.Waiting[resource]; resource != "ba" && !errors.Is(err, ErrNotPlural) || !strings.Contains(err.Error(), "write backups.velero.io") {
				t.Errorf("%s with a rule for %s waits because: %v", resource, text, err)
			}
		}
	}
	for _, text := range []string{"backups", "backups.velero.io", "*.velero.io", "*.*"} {
		p := Make([]Entry{{Resource: "ba", Redacted: []string{text}}}, nil, catalog, labelled(nil))
		if len(p.Collections) != 1 || len(p.Warnings) > 0 || len(p.Waiting) > 0 {
			t.Errorf("rule for %s: %q, %v, %v", text, ids(&p), p.Warnings, p.Waiting)
		}
	}
}

// A rule that hides nothing, because no resource has its name, is reported once, and not while an API group cannot be asked.
func TestRulesWithoutAResource(t *testing.T) {
	for _, text := range []string{"backups", "backups.velero.io", "*.velero.io", "deployments.ap"} {
		entries := []Entry{{Resource: "pods", Redacted: []string{text}}, {Resource: "nodes", Redacted: []string{text}}}
		p := Make(entries, nil, ordinary(), labelled(nil))
		if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], text) || len(p.Collections) != 2 {
			t.Errorf("%s: %q, %q", text, p.Warnings, ids(&p))
		}
	}
	p := Make([]Entry{{Resource: "pods", Redacted: []string{"backups"}}}, nil, ordinary("?velero.io/v1"), labelled(nil))
	if len(p.Warnings) > 0 {
		t.Errorf("warned of a resource that may be served: %q", p.Warnings)
	}
}

// Rules and filters of an entry must not vanish because its name means another resource than before, or none: a pattern never takes a resource
// that a named entry may mean.
func TestPatternsTakeNothingThatAnEntryMayMean(t *testing.T) {
	const velero = "backups.v1.velero.io"
	for _, c := range []struct {
		name    string
		entry   Entry
		catalog []string
		want    string // the entry has this collection; "": it waits
	}{
		{"the only one", Entry{Resource: "backups"}, []string{velero}, "backups.velero.io"},
		{"one of the same plural before it", Entry{Resource: "backups"}, []string{"backups.v1.k8up.io", velero}, "backups.k8up.io"},
		{"one that cannot be watched before it", Entry{Resource: "backups"}, []string{"~backups.v1.k8up.io", velero}, ""},
		{"an unknown version", Entry{Resource: "backups.v2.velero.io"}, []string{velero}, ""},
		{"no short name", Entry{Resource: "ba"}, []string{velero}, ""},
		{"no singular", Entry{Resource: "backup"}, []string{velero}, ""},
		{"no short name, with the group", Entry{Resource: "ba.velero.io"}, []string{velero}, ""},
		{"a plural like the short name", Entry{Resource: "ba"}, []string{"ba.v1.acme.io", velero}, "ba.acme.io"},
		{"cluster-scoped", Entry{Resource: "backups.velero.io", Namespaces: []string{"a"}}, []string{"-" + velero}, ""},
		{"cluster-scoped, without the group", Entry{Resource: "backups", NamespaceSelector: "x=y"}, []string{"-" + velero}, ""},
	} {
		for _, pattern := range []string{"*.*", "*.velero.io"} {
			c.entry.Options = "hides values"
			p := Make([]Entry{c.entry, {Resource: pattern, Options: "in clear"}}, nil, ordinary(c.catalog...), labelled(nil))
			has := ""
			for _, one := range p.Collections {
				switch id := one.Target.Collection.ResourceID(); {
				case one.Options == "hides values":
					has = id
				case strings.HasPrefix(id, "ba"):
					t.Errorf("%s: %s has %s", c.name, pattern, id)
				}
			}
			if has != c.want {
				t.Errorf("%s, %s: the entry has %q, want %q", c.name, pattern, has, c.want)
			}
			waits := p.Waiting[c.entry.Resource]
			if has == "backups.velero.io" {
				continue
			}
			if waits == nil {
				t.Errorf("%s, %s: nothing says that backups.velero.io is not published", c.name, pattern)
			}
			outcomes := p.Outcomes([]Known{{ID: "backups.velero.io", Held: Objects}}, nil)
			if has != "" && !slices.Equal(outcomes.Undecided, []string{"backups.velero.io"}) {
				t.Errorf("%s, %s: what was published before: %+v", c.name, pattern, outcomes)
			}
		}
	}
}

// Names of Kubernetes' own resources keep their meaning whatever else is installed, so patterns take other resources of these names.
func TestPatternsTakeNamesakesOfOwnResources(t *testing.T) {
	catalog := ordinary("deployments.v1.acme.io", "pods.v1.acme.io")
	for _, entry := range []string{"deployments", "deployments.apps", "deployment", "pods"} {
		p := Make([]Entry{{Resource: entry}, {Resource: "*.acme.io"}}, nil, catalog, labelled(nil))
		if got := ids(&p); len(got) != 3 || len(p.Waiting) > 0 || p.Err != nil {
			t.Errorf("%s: %q, %v", entry, got, p.Waiting)
		}
	}
	both := Make([]Entry{{Resource: "backups"}, {Resource: "backups.velero.io"}, {Resource: "*.*"}}, nil,
		catalogOf("backups.v1.k8up.io", "backups.v1.velero.io"), labelled(nil))
	if len(both.Collections) != 2 || len(both.Waiting) > 1 || both.Waiting["backups"] != nil {
		t.Errorf("both are named: %q, %v", ids(&both), both.Waiting)
	}
}
