package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	blockStart = regexp.MustCompile(`^\s*(?:\||[-*] |\d+\. |#)`)
	markup     = strings.NewReplacer("`", "", "**", "", `\*`, "*", `\|`, "|", `\_`, "_", `\<`, "<", "[", "")
)

// plain is a text without markup, upper case and line ends.
func plain(text string) string {
	text = markup.Replace(linkTarget.ReplaceAllString(text, ""))
	return strings.ToLower(strings.Join(strings.Fields(text), " "))
}

// blocks are the paragraphs, list items and table rows of a page.
func blocks(page string) []string {
	var found, block []string
	for line := range strings.Lines(page) {
		if strings.TrimSpace(line) == "" || blockStart.MatchString(line) {
			found, block = append(found, plain(strings.Join(block, " "))), nil
		}
		block = append(block, line)
	}
	return append(found, plain(strings.Join(block, " ")))
}

// states reports whether one block has all phrases of a fact.
func states(block, phrases string) bool {
	for phrase := range strings.SplitSeq(phrases, " + ") {
		if !strings.Contains(block, plain(phrase)) {
			return false
		}
	}
	return true
}

// A page that is shortened must not lose a limit, a default, a promise or an exception.
func TestFactsAreStated(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	var stated []string
	for _, page := range append(pages, "../README.md") {
		stated = append(stated, blocks(readFile(t, page))...)
	}
	facts := 0
	for line := range strings.Lines(readFile(t, "reading/facts.tsv")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(strings.TrimSpace(line), "\t")
		if len(cells) != 3 {
			t.Errorf("%d columns, want 3: %s", len(cells), line)
			continue
		}
		facts++
		found := false
		for _, block := range stated {
			found = found || states(block, cells[1])
		}
		if !found {
			t.Errorf("no page states %q any more: %s (was in %s)", cells[1], cells[2], cells[0])
		}
	}
	if facts < 400 {
		t.Errorf("only %d facts were found", facts)
	}
}
