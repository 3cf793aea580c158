package config

import (
	"fmt"
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
	if diff := cmp.Diff(Resource{Resource: "*.*", Snapshot: SnapshotPublish}, c.Resources[0]); diff != "" {
		t.Errorf("without options (-want +got):\n%s", diff)
	}
	if c.Admin.Socket != "/run/kubebridge.sock" || len(c.Exclude) != 2 {
		t.Errorf("admin %q, exclude %q", c.Admin.Socket, c.Exclude)
	}
}

// A mistake in an entry that only shows on the cluster is reported with the line of that entry, also if a sink has its
// own list of entries.
func TestPlacesOfEntries(t *testing.T) {
	c, err := parse("f.yaml", []byte(`cluster: x
checkpoint: {file: {path: /cp}}
sinks:
  - {name: all, stdout: {}}
  - name: own
    stdout: {}
    resources:
      - nodes
      - &x {resource: pods, name: b, labelSelector: a=b}
resources: [services, pods, {<<: *x, name: c}]
`), nil, testEnv)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"services f.yaml:10:13", "pods f.yaml:10:23", "pods:c f.yaml:10:29"}, {"nodes f.yaml:8:9", "pods:b f.yaml:9:9"}} {
		var got []string
		for _, e := range c.Entries(&c.Sinks[i]) {
			got = append(got, e.String()+" "+e.Place)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.Sinks[i].Name, diff)
		}
	}
}

// Options that many resources share are written once. An option next to << overrides a shared one.
func TestSharedOptions(t *testing.T) {
	text, err := os.ReadFile("testdata/anchors.good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse("anchors", text, nil, testEnv)
	if err != nil {
		t.Fatal(err)
	}
	want := Resource{Resource: "nodes", Resync: 24 * time.Hour, Snapshot: SnapshotPublish}
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

// A cluster with thousands of tenants has thousands of entries. The time to check them must grow in proportion to
// their number. If it grew quadratically, 200,000 entries would take longer than a test may.
func TestManyEntries(t *testing.T) {
	list := make([]Resource, 200_000)
	for i := range list {
		list[i] = Resource{Resource: "pods", Entry: fmt.Sprintf("tenant-%d", i), Namespaces: []string{fmt.Sprintf("n%d", i)}}
	}
	p := problems{}
	p.resources("resources", list)
	if len(p.list) > 0 {
		t.Error(p.list)
	}
}
