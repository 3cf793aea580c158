package config

import (
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// A rule with a singular or short name would hide nothing. It is refused for each resource of Kubernetes, and the message has the plural.
func TestRulesNeedThePlural(t *testing.T) {
	catalog, refused := discovery.Builtin(), 0
	parsed := func(name string) error {
		_, err := parse("test", []byte("cluster: x\nresources: [pods]\nredact: [{paths: [spec], resources: ["+name+"]}]\nsinks: [{name: a, stdout: {}}]\n"), nil, testEnv)
		return err
	}
	for _, r := range catalog.Match(discovery.Parse("*.*")) {
		plural := strings.TrimSuffix(r.Name+"."+r.Group, ".")
		if err := parsed(plural); err != nil {
			t.Errorf("%s: %v", plural, err)
		}
		for _, other := range append(catalog.ShortNames(discovery.Parse(plural)), strings.ToLower(r.Kind)) {
			if other == r.Name {
				continue // endpoints
			}
			group := r.Group
			if group == "" {
				group = "core"
			}
			for _, name := range []string{other, other + "." + group} {
				refused++
				if err := parsed(name); err == nil || !strings.Contains(err.Error(), "write "+r.Name) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	if refused < 150 {
		t.Errorf("only %d names were tried", refused)
	}
	if err := parsed("quota.acme.io"); err != nil {
		t.Errorf("the plural of a custom resource: %v", err)
	}
}
