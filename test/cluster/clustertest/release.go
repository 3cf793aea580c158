package clustertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// ReleaseEnv names the environment variable with the Kubernetes release that Launch starts, such as "v1.34.4". Without it,
// that is the release of the program's go.mod.
const ReleaseEnv = "KUBEBRIDGE_KUBERNETES"

var (
	isRelease = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+$`)
	// staging matches the modules that k8s.io/kubernetes replaces with folders of its own repository.
	staging = regexp.MustCompile(`(?m)^\t(\S+) => \./staging/`)
)

// releaseModule makes a module of the program's sources with another release of Kubernetes in dir, and returns dir. All
// other modules, such as etcd's server, are of the versions that Kubernetes requires.
func releaseModule(ctx context.Context, src, dir, release string) (_ string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make the module of Kubernetes %s: %w", release, err)
		}
	}()
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	sources, err := filepath.Glob(filepath.Join(src, "*.go"))
	if err != nil {
		return "", err
	}
	for _, from := range sources {
		data, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(from)), data, 0o600); err != nil {
			return "", err
		}
	}
	mod, err := releaseMod(ctx, src, release)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o600); err != nil {
		return "", err
	}
	// It names the modules of the imports in go.mod, and makes go.sum.
	if out, err := goCommand(ctx, dir, "list", "-mod=mod", "-deps", ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
}

// releaseMod is the go.mod of the program with a release of Kubernetes.
func releaseMod(ctx context.Context, src, release string) ([]byte, error) {
	out, err := goCommand(ctx, src, "mod", "download", "-json", "k8s.io/kubernetes@"+release).Output()
	if err != nil {
		return nil, fmt.Errorf("download it: %w\n%s", err, out)
	}
	var downloaded struct{ GoMod string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return nil, fmt.Errorf("download it: %w", err)
	}
	theirs, err := os.ReadFile(downloaded.GoMod)
	if err != nil {
		return nil, err
	}
	var mod bytes.Buffer
	fmt.Fprintf(&mod, "module %s\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes %s\n\n", modulePath, release)
	for _, m := range staging.FindAllSubmatch(theirs, -1) {
		fmt.Fprintf(&mod, "replace %s => %s v0%s\n", m[1], m[1], strings.TrimPrefix(release, "v1"))
	}
	return mod.Bytes(), nil
}

// versionFlags are the linker's flags for what /version answers, as official builds set them.
func versionFlags(release string) string {
	numbers := strings.SplitN(strings.TrimPrefix(release, "v"), ".", 3)
	const flag = "-X k8s.io/component-base/version."
	return flag + "gitVersion=" + release + " " + flag + "gitMajor=" + numbers[0] + " " + flag + "gitMinor=" + numbers[1]
}

// releaseOf is the release of Kubernetes in a module's go.mod.
func releaseOf(ctx context.Context, dir string) (string, error) {
	out, err := goCommand(ctx, dir, "list", "-m", "-f={{.Version}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return "", fmt.Errorf("look up the release of Kubernetes in %s: %w", dir, err)
	}
	return strings.TrimSpace(string(out)), nil
}
