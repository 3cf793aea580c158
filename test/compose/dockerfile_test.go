package compose

import (
	"debug/elf"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// stages are the two of the Dockerfile. BuildKit's complaints fail the test.
func stages(t *testing.T) (build, image instructions.Stage) {
	t.Helper()
	f, err := os.Open(root + "/Dockerfile")
	must(t, err)
	defer f.Close()
	parsed, err := parser.Parse(f)
	must(t, err)
	for _, w := range parsed.Warnings {
		t.Errorf("line %v: %s", w.Location, w.Short)
	}
	all, _, err := instructions.Parse(parsed.AST, linter.New(&linter.Config{
		Warn: func(rule, _, _, message string, at []parser.Range) { t.Errorf("line %v: %s: %s", at, rule, message) },
	}))
	must(t, err)
	if len(all) != 2 {
		t.Fatalf("the Dockerfile has %d stages, want 2", len(all))
	}
	return all[0], all[1]
}

// The build stage must be able to build what go.mod asks for: Go's image does not
// fetch another toolchain.
func TestGoIsNewEnough(t *testing.T) {
	build, _ := stages(t)
	tag, ok := strings.CutPrefix(build.BaseName, "golang:")
	if !ok || !regexp.MustCompile(`^1\.\d+\.\d+$`).MatchString(tag) {
		t.Fatalf("the build begins from %q, want Go's image of one version", build.BaseName)
	}
	mod, err := os.ReadFile(root + "/go.mod")
	must(t, err)
	wanted := regexp.MustCompile(`(?m)^go (.+)$`).FindSubmatch(mod)
	if version.Compare("go"+tag, "go"+string(wanted[1])) < 0 {
		t.Errorf("the build has Go %s, go.mod wants %s", tag, wanted[1])
	}
}

// Nothing runs as root, nothing but the program is added to the image, and the
// compose file relies on its group and its directory.
func TestImage(t *testing.T) {
	build, image := stages(t)
	if want := "gcr.io/distroless/static-debian12:nonroot"; image.BaseName != want {
		t.Errorf("the image begins from %q, want %s", image.BaseName, want)
	}
	var got []string
	for _, c := range image.Commands {
		switch c := c.(type) {
		case *instructions.CopyCommand:
			if c.From != build.Name {
				t.Errorf("%s copies from %q, want %q", c, c.From, build.Name)
			}
			got = append(got, fmt.Sprintf("%s %s:%s", c.Chown, strings.Join(c.SourcePaths, " "), c.DestPath))
		case *instructions.UserCommand:
			got = append(got, "user "+c.User)
		case *instructions.EntrypointCommand:
			got = append(got, "entrypoint "+strings.Join(c.CmdLine, " "))
		case *instructions.CmdCommand:
			got = append(got, "cmd "+strings.Join(c.CmdLine, " "))
		}
	}
	want := []string{
		" /out/bridge:/usr/local/bin/bridge",
		"65532:65532 /out/lib:/var/lib",
		"user 65532:65532",
		"entrypoint /usr/local/bin/bridge",
		"cmd run -c /etc/kubebridge/config.yaml",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	bridge := load(t).Services["bridge"]
	if !strings.HasSuffix(bridge.User, ":65532") {
		t.Errorf("compose runs the bridge as %q, which may not write the image's directory", bridge.User)
	}
	if !slices.ContainsFunc(bridge.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Source == "bridge" && v.Target == "/var/lib/kubebridge"
	}) {
		t.Errorf("compose mounts no volume at the image's directory: %v", bridge.Volumes)
	}
}

// The build stage's commands, run on what it copies and nothing else, must give a
// program that needs no libraries, knows its version and takes the configuration
// of the compose file.
func TestBuildStage(t *testing.T) {
	build, _ := stages(t)
	src, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	env := append(os.Environ(), "VERSION=v1.2.3-test", "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH)
	for _, c := range build.Commands {
		switch c := c.(type) {
		case *instructions.CopyCommand:
			must(t, os.MkdirAll(filepath.Join(src, filepath.Dir(c.DestPath)), 0o755)) // as COPY does
			for _, from := range c.SourcePaths {
				run(t, root, nil, "cp", "-R", from, filepath.Join(src, c.DestPath))
			}
		case *instructions.RunCommand:
			script := strings.ReplaceAll(strings.Join(c.CmdLine, " "), "/out/", out+"/")
			run(t, src, env, "sh", "-ec", script)
		}
	}
	program := filepath.Join(out, "bridge")
	binary, err := elf.Open(program)
	must(t, err)
	defer binary.Close()
	if slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("the program is linked dynamically: the image has no libraries")
	}
	if got := run(t, src, nil, program, "version"); !strings.Contains(got, "v1.2.3-test") {
		t.Errorf("its version is %q", got)
	}
	run(t, root, nil, program, "validate", "-c", source(load(t).Services["bridge"], new("/etc/kubebridge/config.yaml")))
	info, err := os.Stat(filepath.Join(out, "lib", "kubebridge"))
	must(t, err)
	if info.Mode().Perm() != 0o770 {
		t.Errorf("the state's directory has mode %v, want 0770", info.Mode().Perm())
	}
}

func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}
