// Command sbom prints what a Go program is made of, as CycloneDX 1.6 in JSON: the
// modules that its build information names. The same program gives the same bytes.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
)

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

type metadata struct {
	Component component `json:"component"`
}

type bom struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: sbom PROGRAM VERSION")
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return fmt.Errorf("read the build information of %s: %w", args[0], err)
	}
	b := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1}
	b.Metadata.Component = of("application", info.Main.Path, args[1])
	b.Components = []component{of("library", "std", info.GoVersion[len("go"):])}
	for _, d := range info.Deps {
		b.Components = append(b.Components, library(d))
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(b)
}

func library(d *debug.Module) component {
	if d.Replace != nil {
		d = d.Replace
	}
	return of("library", d.Path, d.Version)
}

func of(kind, path, version string) component {
	return component{kind, path, version, "pkg:golang/" + path + "@" + version}
}
