package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsSelected(t *testing.T) {
	text, err := os.ReadFile("testdata/selection.good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse("selection", text, nil, testEnv)
	if err != nil {
		t.Fatal(err)
	}
	want := Resource{
		Resource: "pods", NamespaceSelector: "env=prod", ExcludeNamespaces: []string{"kube-system"}, LabelSelector: "audit=true",
		MetadataOnly: true, Snapshot: SnapshotSkip, Types: []string{"deleted", "added"},
		SyncedEvery: 30 * time.Second, Resync: 24 * time.Hour, VerifyEvery: 6 * time.Hour, Required: true,
	}
	if diff := cmp.Diff(want, c.Resources[3]); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Resource{Resource: "*.*", Snapshot: SnapshotAnnounce}, c.Resources[0]); diff != "" {
		t.Errorf("without options (-want +got):\n%s", diff)
	}
	if c.Admin.Socket != "/run/kubebridge.sock" || len(c.Exclude) != 2 {
		t.Errorf("admin %q, exclude %q", c.Admin.Socket, c.Exclude)
	}
}

// Options that many resources share are written once; what stands beside << wins.
func TestSharedOptions(t *testing.T) {
	text, err := os.ReadFile("testdata/anchors.good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse("anchors", text, nil, testEnv)
	if err != nil {
		t.Fatal(err)
	}
	want := Resource{Resource: "nodes", Resync: 24 * time.Hour, Snapshot: SnapshotAnnounce}
	if diff := cmp.Diff(want, c.Resources[3]); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestAdminSocketByDefault(t *testing.T) {
	deep := "/" + strings.Repeat("d", 80)
	for checkpoints, want := range map[string]string{"/cp": "/cp/admin.sock", "cp": "cp/admin.sock", deep: Off} {
		text := "cluster: x\nresources: [pods]\nsinks: [{name: a, stdout: {}}]\ncheckpoint: {file: {path: " + checkpoints + "}}\n"
		c, err := parse("test", []byte(text), nil, testEnv)
		if err != nil {
			t.Fatal(err)
		}
		if c.Admin.Socket != filepath.FromSlash(want) {
			t.Errorf("checkpoints in %s: the socket is %s, want %s", checkpoints, c.Admin.Socket, want)
		}
	}
}

// Two entries whose selectors may rule each other out are left to the pipeline,
// which can prove it: refusing them here would refuse what works.
func TestOverlaps(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b Resource
		want bool
	}{
		{"same name", Resource{Resource: "pods"}, Resource{Resource: "pods"}, true},
		{"the core group's version", Resource{Resource: "pods"}, Resource{Resource: "pods", Version: "v1"}, true},
		{"another version", Resource{Resource: "jobs.batch"}, Resource{Resource: "jobs.v1.batch"}, true},
		{"a group that begins like a version", Resource{Resource: "x.v1x.io"}, Resource{Resource: "x.io"}, false},
		{"another group", Resource{Resource: "events"}, Resource{Resource: "events.events.k8s.io"}, false},
		{"a narrower pattern", Resource{Resource: "*.*"}, Resource{Resource: "*.apps"}, false},
		{"the core group by either name", Resource{Resource: "*."}, Resource{Resource: "*.core"}, true},
		{"a name under a pattern", Resource{Resource: "*.apps"}, Resource{Resource: "deployments.apps"}, false},
		{"other namespaces", Resource{Resource: "pods", Namespaces: []string{"a"}}, Resource{Resource: "pods", Namespaces: []string{"b", "c"}}, false},
		{"one namespace in common", Resource{Resource: "pods", Namespaces: []string{"a", "b"}}, Resource{Resource: "pods", Namespaces: []string{"b"}}, true},
		{"a namespace and all", Resource{Resource: "pods", Namespaces: []string{"a"}}, Resource{Resource: "pods"}, true},
		{"a namespace and all but it", Resource{Resource: "pods", Namespaces: []string{"a"}}, Resource{Resource: "pods", ExcludeNamespaces: []string{"b", "a"}}, false},
		{"a namespace and all but another", Resource{Resource: "pods", ExcludeNamespaces: []string{"b"}}, Resource{Resource: "pods", Namespaces: []string{"a", "b"}}, true},
		{"a namespace and selected ones", Resource{Resource: "pods", Namespaces: []string{"a"}}, Resource{Resource: "pods", NamespaceSelector: "env=prod"}, false},
		{"selected namespaces and all", Resource{Resource: "pods", NamespaceSelector: "env=prod"}, Resource{Resource: "pods"}, true},
		{"other labels", Resource{Resource: "pods", LabelSelector: "a=b"}, Resource{Resource: "pods", LabelSelector: "a!=b"}, false},
		{"the same labels", Resource{Resource: "pods", LabelSelector: "a=b,c"}, Resource{Resource: "pods", LabelSelector: "c,a=b"}, true},
		{"labels and none", Resource{Resource: "pods", LabelSelector: "a=b"}, Resource{Resource: "pods"}, true},
		{"other fields", Resource{Resource: "pods", FieldSelector: "spec.nodeName=a"}, Resource{Resource: "pods", FieldSelector: "spec.nodeName=b"}, false},
	} {
		for _, pair := range [][2]Resource{{test.a, test.b}, {test.b, test.a}} {
			list := selections{}
			list.add(3, &pair[0])
			if first, found := list.add(5, &pair[1]); found != test.want || found && first != 3 {
				t.Errorf("%s: found is %t with %d, want %t both ways", test.name, found, first, test.want)
			}
		}
	}
}
