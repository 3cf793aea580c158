package terminal_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
)

// Text from other sources must not move the cursor, forge a line, or be displayed in another order.
func TestLegible(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		"shop/wéb ünïcode 網":      "shop/wéb ünïcode 網",
		"a\x1b[2Jb":               `a\x1b[2Jb`,
		"a\nADDED\r":              `a\nADDED\r`,
		"c1 \u009b31m":            `c1 \u009b31m`,
		"raw \x9b31m":             `raw \x9b31m`,
		"del\x7f tab\t":           `del\x7f tab\t`,
		"a\u202egpj.exe":          `a\u202egpj.exe`,
		"zero\u200bwidth":         `zero\u200bwidth`,
		"tags \U000e0041":         `tags \U000e0041`,
		`already \x1b "quoted"`:   `already \x1b "quoted"`,
		"a no-break\u00a0space":   `a no-break\u00a0space`,
		"line\u2028para\u2029end": `line\u2028para\u2029end`,
	} {
		if got := terminal.Legible(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// FuzzLegible: no control sequence for a terminal passes, for any division of the text into writes, and JSON keeps its meaning.
func FuzzLegible(f *testing.F) {
	f.Add("a\x1b[2J\u009b\u202e網\U000e0041", uint8(3))
	f.Add(`{"a\u001b":"`+"\u009b\x7f\U000e0041"+`"}`, uint8(1))
	f.Add("\xe7\xb6", uint8(1))
	f.Fuzz(func(t *testing.T, text string, step uint8) {
		line := terminal.Legible(text)
		if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Fatalf("%q: %q passes", text, line[i:])
		}
		var out bytes.Buffer
		w := terminal.NewLegible(&out)
		for rest := text; rest != ""; {
			n := min(int(step)+1, len(rest))
			if wrote, err := w.Write([]byte(rest[:n])); wrote != n || err != nil {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		for _, r := range out.String() {
			if r != '\n' && r != '\t' && (!unicode.IsPrint(r) || r == utf8.RuneError) {
				t.Fatalf("%q: %q passes in %q", text, r, out.String())
			}
		}
		if utf8.ValidString(text) && json.Valid([]byte(text)) && !strings.ContainsAny(text, "\r") {
			var before, after any
			if json.Unmarshal([]byte(text), &before) != nil {
				return // a number that is too large
			}
			if err := json.Unmarshal(out.Bytes(), &after); err != nil || !reflect.DeepEqual(before, after) {
				t.Fatalf("%q became %q: %v", text, out.String(), err)
			}
		}
	})
}
