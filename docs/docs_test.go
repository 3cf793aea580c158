// Package docs holds no code: its tests keep the documentation's links true.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names that a page's headings can be linked by, as GitHub makes them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
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
			if !anchors(string(linked))[anchor] {
				t.Errorf("%s: (%s): %s has no such heading", page, m[1], target)
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links in %d pages were found", links, len(pages))
	}
}

// Who looks for a page finds it in the index.
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
