package clustertest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// modulePath is the program's module; the right folder is recognized by it in go.mod.
const modulePath = "github.com/kubebridge/kubebridge/test/cluster"

// compileFlags leave out inlining and debugging symbols: two thirds of the time. The demo's other programs are compiled with the same
// (scripts/go.sh), so that they share packages.
const compileFlags = "-gcflags=all=-l -dwarf=false"

// keepBinaries is how many cached binaries (some 110 MB each) stay: enough for a few checkouts side by side.
const keepBinaries = 3

// Build is BuildRelease for the release that ReleaseEnv names.
func Build(ctx context.Context) (path string, err error) {
	return BuildRelease(ctx, os.Getenv(ReleaseEnv))
}

// BuildRelease returns the path of the program compiled with a release of Kubernetes, such as "v1.34.4"; "": the release in
// the program's go.mod. It compiles the program first if the user's cache directory has none for these sources, this Go
// version and this platform. That takes some minutes, announced on stderr. Concurrent callers, in any process, wait for one
// another. The caller must have the go command and the program's source at hand; ctx bounds waiting and compiling.
func BuildRelease(ctx context.Context, release string) (path string, err error) {
	return build(ctx, release, true)
}

// Built is Build, but returns "" instead of compiling.
func Built(ctx context.Context) (path string, err error) {
	return build(ctx, os.Getenv(ReleaseEnv), false)
}

func build(ctx context.Context, release string, missing bool) (path string, err error) {
	if release != "" && !isRelease.MatchString(release) {
		return "", fmt.Errorf("release of Kubernetes %q: want one such as v1.34.4", release)
	}
	src, err := sourceDir()
	if err != nil {
		return "", err
	}
	sum, err := fingerprint(ctx, src)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w", err)
	}
	cache = filepath.Join(cache, "kubebridge")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("make cache directory: %w", err)
	}
	name := "cluster"
	if release != "" {
		name += "_" + release // pruned apart, so that a run over many releases keeps all of them
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, name+".lock"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	path = filepath.Join(cache, name+"-"+sum)
	// The modification time is the time of last use; pruning goes by it.
	now := time.Now()
	if err := os.Chtimes(path, now, now); err == nil {
		return path, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look up cached cluster program: %w", err)
	}
	if !missing {
		return "", nil
	}
	if release == "" {
		release, err = releaseOf(ctx, src)
	} else {
		src, err = releaseModule(ctx, src, filepath.Join(cache, "source_"+release), release)
	}
	if err != nil {
		return "", err
	}
	if err := compile(ctx, src, path, release); err != nil {
		return "", err
	}
	return path, prune(filepath.Join(cache, name+"-*"))
}

// compile builds the module in src, which has the release of Kubernetes, to path.
func compile(ctx context.Context, src, path, release string) error {
	fmt.Fprintf(os.Stderr, "clustertest: compiling kube-apiserver %s and etcd (minutes, once) to %s\n", release, path)
	start := time.Now()
	part := path + ".part"
	// Symbols are left out: a third less to link.
	cmd := goCommand(ctx, src, "build", compileFlags, "-buildvcs=false", "-ldflags=-s -w "+versionFlags(release), "-o", part, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("compile cluster program in %s: %w\n%s", src, err, out), os.RemoveAll(part))
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("keep cluster program: %w", err)
	}
	fmt.Fprintf(os.Stderr, "clustertest: compiled in %s\n", time.Since(start).Round(time.Second))
	return nil
}

// goCommand is the go command in dir, free of the caller's workspace and module flags. Without cgo, as the bridge is built: both share the
// compiled packages.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// Compilers the go command leaves behind when it is killed hold on to its output.
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0", "PWD="+dir)
	return cmd
}

// sourceDir finds the program's source: beside this file, or, where paths were trimmed from the binary, in the working
// directory, one above it, or a test/cluster in one of them.
func sourceDir() (string, error) {
	var candidates []string
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		candidates = append(candidates, filepath.Dir(filepath.Dir(file)))
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find cluster program's source: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		candidates = append(candidates, dir, filepath.Join(dir, "test", "cluster"))
		if dir == filepath.Dir(dir) {
			break
		}
	}
	for _, dir := range candidates {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module "+modulePath+"\n")) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("find cluster program's source: no module %s beside this package or above %s: run from a checkout", modulePath, wd)
}

// fingerprint names one build: a digest of the sources (the program is one package), go.mod and go.sum, the Go version and
// the platform.
func fingerprint(ctx context.Context, src string) (string, error) {
	env, err := goCommand(ctx, src, "env", "GOVERSION", "GOOS", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for its version: %w", err)
	}
	entries, err := os.ReadDir(src)
	if err != nil {
		return "", fmt.Errorf("read cluster program's source: %w", err)
	}
	h := sha256.New()
	fmt.Fprintln(h, string(env), compileFlags)
	for _, e := range entries {
		name := e.Name()
		isSource := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
		if !isSource && name != "go.mod" && name != "go.sum" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return "", fmt.Errorf("read cluster program's source: %w", err)
		}
		fmt.Fprintf(h, "%s %d\n", name, len(data))
		h.Write(data)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// lockFile waits for the exclusive lock on path, which the kernel frees when its holder dies.
func lockFile(ctx context.Context, path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open build lock: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("take build lock %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another build of the cluster program: %w", ctx.Err()), f.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// prune deletes all but the last used of the binaries that match pattern. A cluster that runs one of them does not notice; its Restart would.
func prune(pattern string) error {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("prune cached cluster programs: %w", err)
	}
	used := make(map[string]time.Time, len(paths))
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return fmt.Errorf("prune cached cluster programs: %w", err)
		}
		used[p] = info.ModTime()
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(used[b].Compare(used[a]), strings.Compare(a, b)) })
	for _, p := range paths[min(len(paths), keepBinaries):] {
		if err := os.Remove(p); err != nil {
			return fmt.Errorf("prune cached cluster programs: %w", err)
		}
	}
	return nil
}
