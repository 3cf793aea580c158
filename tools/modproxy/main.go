// Command modproxy writes a directory that the go command takes as a module proxy (GOPROXY=file:///...), with one version of this repository's
// module: HEAD, as a proxy makes it of a tag. It fails for a module that no proxy would serve: too large, or with files that it may not have.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: modproxy REPOSITORY VERSION DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "modproxy:", err)
		os.Exit(1)
	}
}

func run(repository, version, dir string) error {
	mod, err := git(repository, "show", "HEAD:go.mod")
	if err != nil {
		return err
	}
	file, err := modfile.Parse("go.mod", mod, nil)
	if err != nil {
		return err
	}
	if len(file.Replace) > 0 { // `go install` of a version refuses it
		return errors.New("go.mod has a replace directive")
	}
	when, err := git(repository, "log", "-1", "--format=%cI")
	if err != nil {
		return err
	}
	committed, err := time.Parse(time.RFC3339, strings.TrimSpace(string(when)))
	if err != nil {
		return err
	}
	v := module.Version{Path: file.Module.Mod.Path, Version: version}
	path, err := module.EscapePath(v.Path)
	if err != nil {
		return err
	}
	return write(filepath.Join(dir, filepath.FromSlash(path), "@v"), repository, v, map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".mod":  mod,
		version + ".info": info(v, committed),
	})
}

func info(v module.Version, committed time.Time) []byte {
	b, _ := json.Marshal(map[string]any{"Version": v.Version, "Time": committed.UTC()}) // cannot fail: text and a time
	return b
}

// write writes the files of a version, and its zip.
func write(dir, repository string, v module.Version, files map[string][]byte) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(dir, v.Version+".zip"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return zip.CreateFromVCS(f, v, repository, "HEAD", "")
}

func git(dir string, args ...string) ([]byte, error) {
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
