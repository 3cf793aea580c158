package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Somebody who may install a CustomResourceDefinition must not be able to take an entry away from the resource that it has: its collection would be
// closed while its objects exist, and their changes would be hidden. The cases have the rows of the table of planner.find.
func TestNamesakes(t *testing.T) {
	const istio, gateway = "gateways.v1.networking.istio.io", "gateways.v1.gateway.networking.io" // by kubectl's order, gateway comes first
	const istioID, gatewayID = "gateways.networking.istio.io", "gateways.gateway.networking.io"
	had := func(ids ...string) (known []Known) {
		for _, id := range ids {
			known = append(known, Known{ID: id, Held: Objects})
		}
		return known
	}
	both := []string{gateway, istio}
	names := func(text string) []Entry { return []Entry{{Resource: text}} }
	for _, c := range []struct {
		name    string
		entries []Entry
		catalog []string
		known   []Known
		want    []string // outcomes
		says    string   // [Plan.Waiting] of the first entry contains each of these words; "": nothing
	}{
		{"the only one", names("gateways"), []string{istio}, nil, []string{"wanted " + istioID}, ""},
		{"a newcomer of the plural", names("gateways"), both, had(istioID), []string{"wanted " + istioID}, istioID + " " + gatewayID},
		{"a newcomer of the plural behind it", names("gateways"), both, had(gatewayID), []string{"wanted " + gatewayID}, istioID + " " + gatewayID},
		{"a newcomer, and no object is left", names("gateways"), both, []Known{{ID: istioID, Held: Empty}}, []string{"wanted " + istioID}, gatewayID},
		{"a newcomer before the first list", names("gateways"), both, []Known{{ID: istioID, Last: &Collection{}}}, []string{"wanted " + istioID}, gatewayID},
		{"a newcomer, in a namespace", []Entry{{Resource: "gateways", Namespaces: []string{"a"}}}, both, had(istioID + "@a"), []string{"wanted " + istioID + "@a"}, gatewayID},
		{"a newcomer, of an entry with a name", []Entry{{Resource: "gateways", Name: "x"}}, both, had(istioID+":x", gatewayID), []string{"wanted " + istioID + ":x", "removed " + gatewayID}, gatewayID},
		{"a short name", names("ga"), both, had(istioID), []string{"wanted " + istioID}, gatewayID},
		{"a plural like the short name", names("ga"), []string{"ga.v1.aaa.io", istio}, had(istioID), []string{"wanted " + istioID}, "ga.aaa.io"},
		{"a short name in a group", names("ga.networking.istio.io"), []string{"ga.v1.networking.istio.io", istio}, had(istioID), []string{"wanted " + istioID}, "ga.networking.istio.io"},
		{"a version like the group", names("widgets.stable.example.com"), []string{"widgets.stable.example.com", "widgets.v1.stable.example.com"}, nil, []string{"wanted widgets.stable.example.com"}, ""},
		{
			"a group like the version", names("widgets.v1.example.com"),
			[]string{"widgets.v1.example.com", "widgets.v2.v1.example.com"},
			had("widgets.example.com"),
			[]string{"wanted widgets.example.com"},
			"widgets.v1.example.com",
		},
		{
			"a version like the group that looks like one", names("widgets.v1.example.com"),
			[]string{"widgets.v1.example.com", "widgets.v2.v1.example.com"},
			had("widgets.v1.example.com"),
			[]string{"wanted widgets.v1.example.com"},
			"widgets.example.com",
		},
		{"none known", names("gateways"), both, nil, nil, istioID + " " + gatewayID},
		{"both known", names("gateways"), both, had(istioID, gatewayID), []string{"undecided " + gatewayID, "undecided " + istioID}, istioID + " " + gatewayID},
		{"one is closed", names("gateways"), both, append(had(istioID), Known{ID: gatewayID}), []string{"wanted " + istioID, "removed " + gatewayID}, gatewayID},
		{"one is leaving", names("gateways"), both, append(had(istioID), Known{ID: gatewayID, Held: Objects, Leaving: true}), []string{"wanted " + istioID, "removed " + gatewayID}, gatewayID},
		{"wanted again", names("gateways"), both, []Known{{ID: istioID, Held: Objects, Leaving: true}}, []string{"wanted " + istioID}, gatewayID},
		{"the other one is named", []Entry{{Resource: "gateways"}, {Resource: gatewayID}}, both, nil, []string{"wanted " + gatewayID, "wanted " + istioID}, ""},
		{"the other one is named, and both are known", []Entry{{Resource: "gateways"}, {Resource: gatewayID}}, both, had(istioID, gatewayID), []string{"wanted " + gatewayID, "wanted " + istioID}, ""},
		{"the same one is named", []Entry{{Resource: "gateways"}, {Resource: istioID, Name: "x", LabelSelector: "x"}}, both, had(istioID, istioID+":x"), []string{"wanted " + istioID, "wanted " + istioID + ":x"}, gatewayID},
		{"its definition is deleted", names("gateways"), []string{gateway}, had(istioID), []string{"unserved " + istioID}, istioID},
		{"its definition is deleted, by a short name", names("ga"), []string{gateway}, had(istioID), []string{"unserved " + istioID}, istioID},
		{"its objects are deleted, too", names("gateways"), []string{gateway}, []Known{{ID: istioID, Held: Gone}}, []string{"wanted " + gatewayID, "removed " + istioID}, ""},
		{"its group does not answer", names("gateways"), []string{gateway, "?networking.istio.io/v1"}, had(istioID), []string{"undecided " + istioID}, istioID},
		{"one of Kubernetes' own", names("deployments"), []string{"deployments.v1.aaa.io", "deployments.v1.apps"}, nil, []string{"wanted deployments.apps"}, ""},
		{"one of Kubernetes' own, by its short name", names("deploy"), []string{"deploy.v1.aaa.io", "deployments.v1.apps"}, had("deploy.aaa.io"), []string{"wanted deployments.apps", "removed deploy.aaa.io"}, ""},
		{"one of Kubernetes' own that does not answer", names("deployments"), []string{"deployments.v1.aaa.io", "?apps/v1"}, had("deployments.apps"), []string{"undecided deployments.apps"}, "apps/v1"},
	} {
		p := Make(c.entries, nil, catalogOf(c.catalog...), labelled(nil), c.known)
		out := p.Outcomes(c.known, nil)
		if diff := cmp.Diff(c.want, out.outline()); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		says := ""
		if err := p.Waiting[c.entries[0].String()]; err != nil {
			says = err.Error()
		}
		missing := slices.ContainsFunc(strings.Fields(c.says), func(word string) bool { return !strings.Contains(says, word) })
		if missing || c.says == "" && says != "" || p.Err != nil {
			t.Errorf("%s: says %q, %v, want %q", c.name, says, p.Err, c.says)
		}
	}
}
