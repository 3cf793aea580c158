package chart

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// The packaged chart of a release has the files that Helm packages, the version of the release, and its image. It is the same in each run.
func TestPackage(t *testing.T) {
	pack := func() []byte {
		dir := t.TempDir()
		cmd := exec.Command(filepath.Join(root(), "scripts", "chart.sh"), "v1.2.3-rc.1", dir)
		cmd.Env = append(os.Environ(), "IMAGE=registry.example.com/team/kubebridge")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		file, err := os.ReadFile(filepath.Join(dir, "kubebridge-1.2.3-rc.1.tgz"))
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	archive := pack()
	if string(archive) != string(pack()) {
		t.Error("two runs differ")
	}
	path := filepath.Join(t.TempDir(), "kubebridge.tgz")
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	packed, err := loader.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	source, files := map[string]bool{}, map[string]bool{}
	for _, f := range chart(t).Raw {
		source[f.Name] = len(f.Data) > 0
	}
	for _, f := range packed.Raw {
		files[f.Name] = len(f.Data) > 0
	}
	if !maps.Equal(source, files) {
		t.Errorf("its files: -source +package:\n%s", cmp.Diff(source, files))
	}
	if m := packed.Metadata; m.Version != "1.2.3-rc.1" || m.AppVersion != m.Version {
		t.Errorf("version %s, of the program %s", m.Version, m.AppVersion)
	}
	want := map[string]any{"registry": "registry.example.com", "repository": "team/kubebridge", "tag": ""}
	for key, value := range want {
		if got := packed.Values["image"].(map[string]any)[key]; got != value {
			t.Errorf("image.%s is %q, want %q", key, got, value)
		}
	}
}
