package discovery

import (
	"fmt"
	"strings"
	"testing"
)

// A text has one meaning for the configuration, rules, permissions and topics.
func TestName(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"pods", "pods of any group; pods; or pods"},
		{"Pods", "pods of any group; pods; or pods"},
		{"pods.", `pods of ""; pods; or pods`},
		{"pods.core", `pods of ""; pods; or pods`},
		{"pods.v1.", `pods of "" in v1; pods; or pods, pods.v1.`},
		{"pods.v1.core", `pods of "" in v1; pods; or pods, pods.v1.core`},
		{"deployments.apps", `deployments of "apps"; deployments.apps; or deployments.apps`},
		{"deployments.v1beta2.apps", `deployments of "apps" in v1beta2; deployments.apps; or deployments.apps, deployments.v1beta2.apps`},
		{"widgets.stable.example.com", `widgets of "stable.example.com"; widgets.stable.example.com; or widgets.stable.example.com, widgets.example.com`},
		{"*.apps", `* of "apps"; *.apps`},
		{"*.Apps", `* of "apps"; *.apps`},
		{"*.core", `* of ""; *.core`},
		{"*.", `* of ""; *.core`},
		{"*.*", `* of "*"; *.*; everything`},
		{"*", `* of "*"; *.*; everything`},
	} {
		n := Parse(c.text)
		group, known := n.Group()
		got := fmt.Sprintf("%s of %q", n.Resource(), group)
		if !known {
			got = n.Resource() + " of any group"
		}
		if n.Version() != "" {
			got += " in " + n.Version()
		}
		got += "; " + n.Unversioned()
		switch {
		case n.IsEverything():
			got += "; everything"
		case !n.IsPattern():
			var all []string
			for _, r := range n.Candidates() {
				all = append(all, r.String())
			}
			got += "; or " + strings.Join(all, ", ")
		}
		if got != c.want || n.String() != c.text {
			t.Errorf("%s: got %s, want %s", c.text, got, c.want)
		}
	}
}

// An invalid name is refused with what to write. Otherwise the bridge would wait for a resource that cannot exist.
func TestCheck(t *testing.T) {
	for _, text := range []string{
		"pods", "po", "pods.", "pods.core", "pods.v1.", "deployments.apps", "deployments.v1.apps", "certificates.cert-manager.io",
		"*.*", "*.apps", "*.core", "*.", "*.cert-manager.io", "*.v1x.example.com", "*.v2.epam.example",
	} {
		if err := Parse(text).Check(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"":                  `"" cannot be a resource: name it as kubectl does`,
		"Pods":              `"Pods" cannot be a resource: name it as kubectl does`,
		"Deployment":        `name it as kubectl does, for example deployments.apps`,
		"IngressRoute":      `name it as kubectl does, for example ingressroute`,
		"my pods":           `"my pods" cannot be a resource`,
		"pods..apps-":       `"pods..apps-" cannot be a resource`,
		"pods/log":          `"pods/log": name a resource as kubectl does, for example deployments.v1.apps; subresources have no watch`,
		"apps/deployments":  `subresources have no watch`,
		"*":                 `"*" is no pattern: write *.* for everything, *.GROUP for an API group, or *.core for the core group`,
		"pods*":             `"pods*" is no pattern`,
		"*s.apps":           `"*s.apps" is no pattern`,
		"deployments.*":     `"deployments.*" is no pattern`,
		"*.Apps":            `"*.Apps" is no pattern`,
		"*.v1":              `"*.v1": a pattern has no version, each resource is read in the one that the server prefers: write *.core`,
		"*.v1.apps":         `"*.v1.apps": a pattern has no version, each resource is read in the one that the server prefers: write *.apps`,
		"*.v1.core":         `write *.core`,
		"deployments.apps*": `"deployments.apps*" is no pattern`,
	} {
		if err := Parse(text).Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestNameMatches(t *testing.T) {
	for _, c := range []struct {
		name, group, resource string
		want                  bool
	}{
		{"pods", "", "pods", true},
		{"pods", "metrics.k8s.io", "pods", true},
		{"pods", "", "pod", false},
		{"pods.core", "", "pods", true},
		{"pods.core", "metrics.k8s.io", "pods", false},
		{"*.core", "", "pods", true},
		{"*.", "", "pods", true},
		{"*.core", "apps", "pods", false},
		{"*.apps", "apps", "deployments", true},
		{"*.apps", "x.apps", "deployments", false},
		{"deployments.apps", "apps", "deployments", true},
		{"deployments.apps", "extensions", "deployments", false},
		{"deployments.v1.apps", "apps", "deployments", true},
		{"deployments.v1.apps", "v1.apps", "deployments", true}, // the group may be meant
		{"deployments.v1.apps", "", "deployments", false},
		{"widgets.stable.example.com", "example.com", "widgets", false},
		{"*.*", "x.io", "y", true},
		{"*", "", "y", true},
	} {
		if got := Parse(c.name).Matches(c.group, c.resource); got != c.want {
			t.Errorf("%s matches %s of group %q: %t", c.name, c.resource, c.group, got)
		}
	}
}

func TestNameMayBeOf(t *testing.T) {
	for _, c := range []struct {
		name, group string
		want        bool
	}{
		{"pods", "x.io", true},
		{"pods.", "", true},
		{"pods.", "x.io", false},
		{"pods.v1.", "", true},
		{"deployments.v1.apps", "apps", true},
		{"widgets.stable.example.com", "example.com", true},
		{"widgets.stable.example.com", "stable.example.com", true},
		{"widgets.stable.example.com", "com", false},
		{"*.apps", "apps", true},
		{"*.apps", "", false},
		{"*.core", "", true},
		{"*.*", "x.io", true},
	} {
		if got := Parse(c.name).MayBeOf(c.group); got != c.want {
			t.Errorf("%s may be of group %q: %t", c.name, c.group, got)
		}
	}
}

// Covers detects an entry for an excluded resource by the names alone. If only the cluster knows the group, it returns false.
func TestNameCovers(t *testing.T) {
	for _, c := range []struct {
		name, other string
		want        bool
	}{
		{"pods", "pods", true},
		{"pods", "pods.v1.", true},
		{"pods", "po", false},
		{"deployments.apps", "deployments.v1.apps", true},
		{"deployments.apps", "deployments", false},
		{"deployments", "deployments.apps", false},
		{"*.apps", "deployments.v1.apps", true},
		{"*.apps", "*.apps", true},
		{"*.apps", "*.*", false},
		{"*.apps", "deployments", false},
		{"*.core", "pods.v1.", true},
		{"*.core", "pods", false},
		{"*.", "*.core", true},
		{"*.*", "pods", true},
		{"pods", "*.*", false},
	} {
		if got := Parse(c.name).Covers(Parse(c.other)); got != c.want {
			t.Errorf("%s covers %s: %t", c.name, c.other, got)
		}
	}
}

// A resource whose version is not served any more is not reported as missing.
func TestFindUnversioned(t *testing.T) {
	c := handMade(nil, cluster()...)
	for text, want := range map[string]string{
		"deploy.v2.apps": "deployments.v1.apps", "deployments.v1beta1.apps": "deployments.v1beta1.apps", "pods.v7.": "pods.v1", "pods": "pods.v1",
	} {
		if got, err := c.FindUnversioned(Parse(text)); err != nil || got.String() != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	if _, err := c.FindUnversioned(Parse("unicorns.v1.apps")); err == nil || !strings.Contains(err.Error(), `"unicorns.v1.apps"`) {
		t.Errorf("got %v", err)
	}
}

// Permissions depend on a name's breadth: a form without a breadth of its own must not be granted like a form
// that covers more, such as its group.
func TestBreadthOfOtherForms(t *testing.T) {
	for text, want := range map[string]Breadth{
		"pods": OneResource, "pods.": OneResource, "deployments.v1.apps": OneResource,
		"*.apps": OneGroup, "*.": OneGroup, "*": AllGroups, "*.*": AllGroups,
		"deploy*.apps": OtherBreadth, "*s.apps": OtherBreadth, "deployments.*": OtherBreadth, "*.*.example.com": OtherBreadth,
	} {
		if got := Parse(text).Breadth(); got != want {
			t.Errorf("%s: got breadth %d, want %d", text, got, want)
		}
	}
	for what, n := range map[string]Name{
		"a group in one version":      {resource: all, group: "apps", version: "v1"},
		"a version of everything":     {resource: all, group: all, version: "v1"},
		"a group that is not written": {resource: all, bare: true},
	} {
		if got := n.Breadth(); got != OtherBreadth {
			t.Errorf("%s: got breadth %d", what, got)
		}
	}
}
