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
			if err := p.Waiting[resource]; !errors.Is(err, ErrNotPlural) || !strings.Contains(err.Error(), "write backups.velero.io") {
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
