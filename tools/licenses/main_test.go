package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What nobody has read must not be passed on with a release.
func TestOf(t *testing.T) {
	apache, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ file, text, want, says string }{
		"ours":    {"LICENSE", string(apache), "Apache-2.0", ""},
		"none":    {"README", "free", "", "no licence"},
		"unknown": {"LICENSE.txt", "You may look at this on Sundays, standing on one leg, if you ask before.", "", "read it"},
		"copyleft": {"COPYING", "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as published by the Free Software Foundation, " +
			"either version 3 of the License, or (at your option) any later version.", "", "GPL"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err := run(strings.NewReader("example.org/m v1.0.0 "+dir+"\n"), &out)
			if c.says == "" && (err != nil || out.String() != "example.org/m v1.0.0 "+c.want+"\n") || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%q, %v", out.String(), err)
			}
		})
	}
}
