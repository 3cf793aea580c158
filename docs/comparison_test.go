package docs

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	citation   = regexp.MustCompile(`\[(\d+)\](?:[^(]|$)`)
	sourceItem = regexp.MustCompile(`^(\d+)\. `)
	address    = regexp.MustCompile(`https?://[^)\s]+`)
	repository = regexp.MustCompile(`^https?://(?:www\.)?(?:github\.com|gitlab\.com|codeberg\.org)/`)
	fullCommit = regexp.MustCompile(`/[0-9a-f]{40}(?:/|$)`)
)

// claims are the sections of comparison.md in which every row and every paragraph needs a source.
var claims = []string{"Overview", "What they do", "What somebody who knows Debezium will look for"}

// sourceProblems says what lacks a source in a page like comparison.md.
func sourceProblems(page string) []string {
	var problems []string
	cited, listed := map[string]bool{}, map[string]bool{}
	_, list, _ := strings.Cut(page, "\n## Sources\n")
	number := ""
	linked := map[string]bool{}
	for line := range strings.Lines(list) {
		if m := sourceItem.FindStringSubmatch(line); m != nil {
			number = m[1]
			listed[number] = true
		}
		if address.MatchString(line) {
			linked[number] = true
		}
	}
	body := strings.TrimSuffix(page, list)
	for _, m := range citation.FindAllStringSubmatch(body, -1) {
		cited[m[1]] = true
		if !listed[m[1]] {
			problems = append(problems, fmt.Sprintf("[%s] is not among the sources", m[1]))
		}
	}
	for n := range listed {
		if !cited[n] {
			problems = append(problems, fmt.Sprintf("source %s is not cited", n))
		}
		if !linked[n] {
			problems = append(problems, fmt.Sprintf("source %s has no link", n))
		}
	}
	for _, url := range address.FindAllString(page, -1) {
		if repository.MatchString(url) && !fullCommit.MatchString(url) {
			problems = append(problems, "no full commit in "+url)
		}
	}
	for _, name := range claims {
		_, section, found := strings.Cut(body, "\n## "+name+"\n")
		if !found {
			problems = append(problems, "there is no section "+name)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for block := range strings.SplitSeq(strings.TrimSpace(section), "\n\n") {
			parts := []string{block}
			if strings.HasPrefix(block, "|") {
				parts = strings.Split(block, "\n")
				if len(parts) < 3 {
					problems = append(problems, "a table without rows in "+name)
				}
				parts = parts[min(2, len(parts)):] // without the heading and the line below it
			}
			for _, part := range parts {
				// The bridge's own behaviour has its source in these pages.
				own := strings.HasPrefix(part, "| **kubebridge** |") || !strings.HasPrefix(part, "|")
				if !citation.MatchString(part) && (!own || !link.MatchString(part)) {
					problems = append(problems, "no source: "+part)
				}
			}
		}
	}
	slices.Sort(problems)
	return problems
}

// Readers must be able to check every statement about another project.
func TestComparisonHasSources(t *testing.T) {
	raw, err := os.ReadFile("comparison.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range sourceProblems(string(raw)) {
		t.Error(problem)
	}
}

// The check finds a row or paragraph without a source.
func TestMissingSourcesAreFound(t *testing.T) {
	commit := strings.Repeat("0a", 20)
	good := "# Other tools\n\n## Overview\n\n| tool | any |\n|---|---|\n| A [1] | – |\n\n## What they do\n\n| tool | for |\n|---|---|\n| **kubebridge** | [x](guarantees.md) |\n| **A** | claim [1] |\n\n" +
		"Paragraph [1].\n\n## What somebody who knows Debezium will look for\n\n| Debezium | here |\n|---|---|\n| claim [2] | [x](events.md) |\n\n" +
		"## Sources\n\n1. a:\n   [`f`](https://github.com/a/b/blob/" + commit + "/f).\n2. [page](https://example.org/page).\n"
	if problems := sourceProblems(good); problems != nil {
		t.Fatalf("problems in a good page: %q", problems)
	}
	for _, c := range []struct{ name, from, to, want string }{
		{"a row without a source", "| claim [1] |", "| claim |", "no source: | **A** | claim |"},
		{"a row with a link to this project only", "| claim [2] |", "| claim |", "no source: | claim | [x](events.md) |"},
		{"a paragraph without a source", "Paragraph [1].", "Paragraph.", "no source: Paragraph."},
		{"an unknown source", "claim [1]", "claim [7]", "[7] is not among the sources"},
		{"a source that nothing cites", "claim [2]", "claim [1]", "source 2 is not cited"},
		{"a source without a link", "[page](https://example.org/page)", "page", "source 2 has no link"},
		{"a branch", commit, "main", "no full commit in https://github.com/a/b/blob/main/f"},
		{"a short commit", commit, commit[:7], "no full commit in https://github.com/a/b/blob/" + commit[:7] + "/f"},
		{"a pull request", "b/blob/" + commit + "/f", "b/pull/1", "no full commit in https://github.com/a/b/pull/1"},
		{"a section that was renamed", "## What they do", "## Tools", "there is no section What they do"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if problems := sourceProblems(strings.Replace(good, c.from, c.to, 1)); !slices.Contains(problems, c.want) {
				t.Errorf("got %q, want %q", problems, c.want)
			}
		})
	}
}
