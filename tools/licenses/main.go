// Command licenses prints the licences of modules, a line each, and fails if one is not
// known or obliges who passes the program on to more than to name it. Its input is a
// line a module: path, version, directory.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// permissive are the licences that a module may have. All of them ask for no more than
// that they stay with the program.
var permissive = []string{"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "0BSD", "CC0-1.0", "Unlicense", "Zlib"}

// covered is how much of a file, in percent, has to be the licence.
const covered = 75

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var bad []error
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) != 3 {
			return fmt.Errorf("%q is no path, version and directory", lines.Text())
		}
		names, err := of(f[2])
		if err != nil {
			bad = append(bad, fmt.Errorf("%s %s: %w", f[0], f[1], err))
		}
		fmt.Fprintf(out, "%s %s %s\n", f[0], f[1], strings.Join(names, ","))
	}
	return errors.Join(append(bad, lines.Err())...)
}

// of finds the licences in the files of a module's root.
func of(dir string) (names []string, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		name := strings.ToUpper(f.Name())
		if f.IsDir() || !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") || strings.HasSuffix(name, ".GO") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		found := licensecheck.Scan(text)
		if found.Percent < covered {
			return names, fmt.Errorf("%s is %.0f%% a licence that is known: read it", f.Name(), found.Percent)
		}
		for _, m := range found.Match {
			if !m.IsURL {
				names = append(names, m.ID)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return nil, errors.New("it has no licence")
	}
	for _, name := range names {
		if !slices.Contains(permissive, name) {
			return names, fmt.Errorf("%s is not one of %s", name, strings.Join(permissive, ", "))
		}
	}
	return names, nil
}
