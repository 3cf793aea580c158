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
			p := Make([]Entry{{Resource: resource, Redacted: []string{text}}, {Resource: "*.*", Name: "other", Redacted: []string{text}}}, nil, catalog, labelled(nil), nil)
			if slices.ContainsFunc(ids(&p), func(id string) bool { return strings.HasPrefix(id, "backups.") }) {
				t.Errorf("%s with a rule for %s: the plan has %q", resource, text, ids(&p))
			}
			if err := p.Waiting[resource]; resource != "ba" && !errors.Is(err, ErrNotPlural) || !strings.Contains(err.Error(), "write backups.velero.io") {
				t.Errorf("%s with a rule for %s waits because: %v", resource, text, err)
			}
		}
	}
	for _, text := range []string{"backups", "backups.velero.io", "*.velero.io", "*.*"} {
		p := Make([]Entry{{Resource: "ba", Redacted: []string{text}}}, nil, catalog, labelled(nil), nil)
		if len(p.Collections) != 1 || len(p.Warnings) > 0 || len(p.Waiting) > 0 {
			t.Errorf("rule for %s: %q, %v, %v", text, ids(&p), p.Warnings, p.Waiting)
		}
	}
}

// A rule that hides nothing, because no resource has its name, is reported once, and not while an API group cannot be asked.
func TestRulesWithoutAResource(t *testing.T) {
	for _, text := range []string{"backups", "backups.velero.io", "*.velero.io", "deployments.ap"} {
		entries := []Entry{{Resource: "pods", Redacted: []string{text}}, {Resource: "nodes", Redacted: []string{text}}}
		p := Make(entries, nil, ordinary(), labelled(nil), nil)
		if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], text) || len(p.Collections) != 2 {
			t.Errorf("%s: %q, %q", text, p.Warnings, ids(&p))
		}
	}
	p := Make([]Entry{{Resource: "pods", Redacted: []string{"backups"}}}, nil, ordinary("?velero.io/v1"), labelled(nil), nil)
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
			had := []Known{{ID: c.want, Held: Objects}}
			p := Make([]Entry{c.entry, {Resource: pattern, Options: "in clear"}}, nil, ordinary(c.catalog...), labelled(nil), had)
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
		p := Make([]Entry{{Resource: entry}, {Resource: "*.acme.io"}}, nil, catalog, labelled(nil), nil)
		if got := ids(&p); len(got) != 3 || len(p.Waiting) > 0 || p.Err != nil {
			t.Errorf("%s: %q, %v", entry, got, p.Waiting)
		}
	}
	both := Make([]Entry{{Resource: "backups"}, {Resource: "backups.velero.io"}, {Resource: "*.*"}}, nil,
		catalogOf("backups.v1.k8up.io", "backups.v1.velero.io"), labelled(nil), nil)
	if len(both.Collections) != 2 || len(both.Waiting) > 1 || both.Waiting["backups"] != nil {
		t.Errorf("both are named: %q, %v", ids(&both), both.Waiting)
	}
}

// A resource that waits must not hold up the others of its entry. Otherwise removed Secrets would go on being published, and with `snapshot: skip`
// every resource or namespace that is added later would be skipped, too.
func TestOneResourceWaits(t *testing.T) {
	catalog := ordinary("backups.v1.k8up.io", "backups.v1.velero.io")
	for _, entries := range [][]Entry{
		{{Resource: "*.*", Redacted: []string{"ba"}}},
		{{Resource: "backups"}, {Resource: "*.*"}},
	} {
		p := Make(entries, nil, catalog, labelled(nil), []Known{{ID: "backups.k8up.io", Held: Objects}})
		if len(p.Waiting) != 1 {
			t.Fatalf("%s: %v", entries[0].Resource, p.Waiting)
		}
		out := p.Outcomes([]Known{{ID: "secrets", Held: Objects}, {ID: "leases.coordination.k8s.io", Held: Objects}, {ID: "backups.velero.io", Held: Objects}}, nil)
		if !slices.Equal(out.Removed, []string{"leases.coordination.k8s.io", "secrets"}) || !slices.Equal(out.Undecided, []string{"backups.velero.io"}) {
			t.Errorf("%s: removed %q, undecided %q", entries[0].Resource, out.Removed, out.Undecided)
		}
		if n, _ := (Numbers{}).Next(&out, func(*Collection) string { return "1" }, 100); len(n.Begun) != len(entries) {
			t.Errorf("%s: with all their collections: %q", entries[0].Resource, n.Begun)
		}
	}
	named := Make([]Entry{{Resource: "backups.velero.io", Redacted: []string{"ba"}}}, nil, catalog, labelled(nil), nil)
	out := named.Outcomes(nil, nil)
	if n, _ := (Numbers{}).Next(&out, func(*Collection) string { return "1" }, 100); len(n.Begun) > 0 {
		t.Errorf("an entry without its only resource has all its collections: %q", n.Begun)
	}
}

// A resource that `exclude` names must not be published because of what else is installed.
func TestExcludedNames(t *testing.T) {
	const aaa, acme = "tokens.v1.aaa.io", "tokens.v1.acme.io"
	everything := []Entry{{Resource: "*.*"}}
	for _, name := range []string{"tokens", "tokens.acme.io", "token", "to", "to.acme.io"} {
		for _, catalog := range [][]string{{acme}, {aaa, acme}, {"~" + aaa, acme}, {"toes.v1.aaa.io", acme}} {
			p := Make(everything, []string{name}, ordinary(catalog...), labelled(nil), nil)
			if slices.Contains(ids(&p), "tokens.acme.io") {
				t.Errorf("without %s, the plan of %q has %q", name, catalog, ids(&p))
			}
			warned := slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, "write tokens.acme.io") })
			if plural := strings.HasPrefix(name, "tokens"); warned == plural || plural && len(p.Warnings) > 0 {
				t.Errorf("%s, %q: warnings %q", name, catalog, p.Warnings)
			}
		}
		p := Make(everything, []string{name}, ordinary("pods.v1.acme.io"), labelled(nil), nil)
		if out := p.Outcomes([]Known{{ID: "tokens.acme.io", Held: Objects}}, nil); strings.HasPrefix(name, "tokens") && len(out.Removed) != 1 {
			t.Errorf("without %s, which is not served: %q", name, out.outline())
		}
	}
	p := Make([]Entry{{Resource: "pods"}}, []string{"to"}, ordinary(acme), labelled(nil), nil)
	if len(p.Warnings) > 0 {
		t.Errorf("warned of an exclusion without a pattern: %q", p.Warnings)
	}
}

// A name of one of Kubernetes' own resources excludes nothing else, also while its group does not answer: another outcome would close collections.
func TestExcludedNamesOfOwnResources(t *testing.T) {
	for _, name := range []string{"pods", "po", "pods.core"} {
		for _, own := range []string{"pods.v1.", "?v1"} {
			p := Make([]Entry{{Resource: "*.*"}}, []string{name}, catalogOf(own, "pods.v1.acme.io"), labelled(nil), nil)
			if got := ids(&p); !slices.Equal(got, []string{"pods.acme.io"}) || len(p.Warnings) > 0 {
				t.Errorf("without %s, with %s: %q, %q", name, own, got, p.Warnings)
			}
		}
	}
}

// A correct configuration must not become wrong because of a CustomResourceDefinition of somebody else: the next start would end the bridge, for all
// resources.
func TestDefinitionsOfOthers(t *testing.T) {
	everything := Entry{Resource: "*.*", Options: "in clear"}
	for _, c := range []struct {
		name    string
		entries []Entry
		exclude []string
		catalog []string
		waits   string   // the entry that waits; "": none
		want    []string // the collections of entries without a pattern
	}{
		{"a short name like the entry", []Entry{{Resource: "th"}, everything}, nil, []string{"things.v1.evil.io"}, "th", nil},
		{"also excluded", []Entry{{Resource: "th"}, everything}, []string{"things"}, []string{"things.v1.evil.io"}, "th", nil},
		{"excluded by the plural alone", []Entry{{Resource: "things.good.io"}, everything}, []string{"things"}, []string{"things.v1.good.io"}, "things.good.io", nil},
		{"excluded by the plural, and another one of the plural", []Entry{{Resource: "things.good.io"}, everything}, []string{"things"}, []string{"things.v1.evil.io", "things.v1.good.io"}, "things.good.io", nil},
		{"the name of the entry, of another scope", []Entry{{Resource: "things.good.io", Namespaces: []string{"a"}}, everything}, nil, []string{"-things.v1.good.io"}, "things.good.io", nil},
		{"of another scope", []Entry{{Resource: "th", Namespaces: []string{"a"}}}, nil, []string{"-things.v1.evil.io"}, "th", nil},
		{"a plural like the entry, of another scope", []Entry{{Resource: "things", Namespaces: []string{"a"}}, everything}, nil, []string{"-things.v1.evil.io", "things.v1.good.io"}, "things", nil},
		{"a short name like an exclusion", []Entry{{Resource: "things.good.io"}, everything}, []string{"th"}, []string{"thoughts.v1.evil.io", "things.v1.good.io"}, "", []string{"things.good.io"}},
		{"none any more", []Entry{{Resource: "things"}, {Resource: "things.good.io", Options: "hides values"}, everything}, nil, []string{"things.v1.good.io"}, "things", []string{"things.good.io"}},
		{"a short name of what an exclusion leaves out", []Entry{{Resource: "th"}, everything}, []string{"*.good.io"}, []string{"things.v1.good.io"}, "", []string{"things.good.io"}},
		{"a short name of what a pattern leaves out", []Entry{{Resource: "th"}, {Resource: "*.*", Namespaces: []string{"a"}, Options: "in clear"}}, nil, []string{"-things.v1.good.io"}, "", []string{"things.good.io"}},
	} {
		p := Make(c.entries, c.exclude, ordinary(c.catalog...), labelled(nil), nil)
		var got []string
		for _, one := range p.Collections {
			id := one.ID()
			if one.Options != "in clear" {
				got = append(got, id)
			} else if strings.HasPrefix(id, "things.") {
				t.Errorf("%s: a pattern has %s", c.name, id)
			}
		}
		if p.Err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, p.Err, c.want)
		}
		waits := p.Waiting[c.waits]
		if c.waits != "" && !errors.Is(waits, ErrAmbiguous) && !errors.Is(waits, ErrMismatch) && !errors.Is(waits, ErrSeveral) || c.waits == "" && len(p.Waiting) > 0 {
			t.Errorf("%s: waiting: %v", c.name, p.Waiting)
		}
	}
	hiding := Make([]Entry{{Resource: "things"}, {Resource: "things.good.io", Options: "hides values"}}, nil, ordinary("things.v1.good.io"), labelled(nil), nil)
	if len(hiding.Collections) != 1 || hiding.Collections[0].Options != "hides values" {
		t.Errorf("the entry with the full name has not its resource: %+v", hiding.Collections)
	}
}
