// Package docs holds no code: its tests keep the documentation's links, and the tests that it names, true.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/shape"
)

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^(#+) (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names that a page's headings can be linked by, as GitHub makes them, with the level of the heading.
func anchors(text string) map[string]int {
	found := map[string]int{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[2]), ""), " ", "-")] = len(h[1])
	}
	return found
}

// A link that leads nowhere costs every reader who follows it.
func TestLinksResolve(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "adr/*.md", "../*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	links := 0
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text := code.ReplaceAllString(fence.ReplaceAllString(string(raw), ""), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			links++
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: (%s) leads nowhere", page, m[1])
				continue
			}
			if anchor == "" {
				continue
			}
			linked, err := os.ReadFile(target)
			if err != nil {
				t.Errorf("%s: (%s): %v", page, m[1], err)
				continue
			}
			if anchors(string(linked))[anchor] == 0 {
				t.Errorf("%s: (%s): %s has no such heading", page, m[1], target)
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links in %d pages were found", links, len(pages))
	}
}

// Readers look for pages in the index, so it must have every page.
func TestIndexNamesEveryPage(t *testing.T) {
	for _, dir := range []string{".", "adr"} {
		raw, err := os.ReadFile(filepath.Join(dir, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		pages, err := filepath.Glob(filepath.Join(dir, "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(raw), "("+name+")") {
				t.Errorf("%s/README.md does not name %s", dir, name)
			}
		}
	}
}

var (
	named = regexp.MustCompile("`([^`]+)`")
	goFn  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)
)

// A promise whose test was renamed or removed is a promise without a test. The first test of a row runs in make test.
func TestPromisesHaveTests(t *testing.T) {
	raw, err := os.ReadFile("promises.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	page, tests := string(raw), map[string]map[string]bool{}
	_, tables, _ := strings.Cut(page, "\n## ")
	rows := 0
	for line := range strings.Lines(tables) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.Contains(line, "| promise |") {
			continue
		}
		rows++
		if len(cells) != 3 {
			t.Errorf("%d columns, want 3: %s", len(cells), line)
			continue
		}
		all := named.FindAllStringSubmatch(cells[2], -1)
		if len(all) == 0 {
			t.Errorf("no test: %s", line)
		}
		if cell := strings.TrimSpace(cells[2]); !strings.HasPrefix(cell, "`") || strings.HasPrefix(cell, "`campaign ") {
			t.Errorf("the first test is none that make test runs: %s", line)
		}
		for _, m := range all {
			place, test, _ := strings.Cut(m[1], " ")
			switch place {
			case "trace":
				if _, err := os.Stat("../internal/bridge/model/testdata/traces/" + test + ".trace"); err != nil {
					t.Errorf("there is no trace %s", test)
				}
			case "campaign":
				if !strings.Contains(string(rules), "\n| "+test+" | ") {
					t.Errorf("reliability.md has no rule %s of the campaign", test)
				}
			default:
				if tests[place] == nil {
					tests[place] = testsOf(t, place)
				}
				if top, _, _ := strings.Cut(test, "/"); !tests[place][top] {
					t.Errorf("package %s has no %s", place, top)
				}
			}
		}
	}
	if rows < 150 {
		t.Errorf("only %d promises were found", rows)
	}
	for _, of := range sectionsWithPromises(t) {
		if !strings.Contains(page, "("+of+")") {
			t.Errorf("promises.md does not name %s", of)
		}
	}
}

// sectionsWithPromises are the sections of the pages about faults, and the limits on every other page.
func sectionsWithPromises(t *testing.T) (list []string) {
	t.Helper()
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for anchor, level := range anchors(string(raw)) {
			switch {
			case page == "events.md" && level > 1, (page == "faults.md" || page == "buffer.md") && level == 2, strings.HasPrefix(anchor, "limits-of-") && level > 1:
				list = append(list, page+"#"+anchor)
			}
		}
	}
	return list
}

// testsOf are the tests of a package.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range goFn.FindAllStringSubmatch(string(raw), -1) {
			found[m[1]] = true
		}
	}
	return found
}

// Operators need the list of annotations that are published unhidden for Secrets.
func TestPlainAnnotationsAreListed(t *testing.T) {
	text, err := os.ReadFile("configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### Secrets\n")
	section, _, _ = strings.Cut(section, "\n### ")
	for _, name := range shape.PlainAnnotations() {
		if !strings.Contains(section, "`"+name+"`") {
			t.Errorf("configuration.md does not list %s", name)
		}
	}
}

// Every attack that security.md excludes has tests, and these tests exist.
func TestAttackersHaveTests(t *testing.T) {
	raw, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(raw), "\n## Attackers\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || strings.HasPrefix(line, "|---") || strings.Contains(line, "| attacker |") {
			continue
		}
		rows++
		all := named.FindAllStringSubmatch(cells[3], -1)
		if len(all) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, m := range all {
			if place, test, _ := strings.Cut(m[1], " "); !testsOf(t, place)[test] {
				t.Errorf("package %s has no %s", place, test)
			}
		}
	}
	if rows < 7 {
		t.Errorf("only %d attackers were found", rows)
	}
}
