package event_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/event"
)

var tokenForm = regexp.MustCompile(`^[A-Za-z0-9_=-]+$`)

func TestEscapeToken(t *testing.T) {
	for _, c := range []struct{ text, token string }{
		{"", "_"},
		{".", "=2E"},
		{"_", "=5F"},
		{"..", "__"},
		{"._", "_=5F"},
		{"=", "=3D"},
		{"=2E", "=3D2E"},
		{"web-0", "web-0"},
		{"kube.system", "kube_system"},
		{"kube_system", "kube=5Fsystem"},
		{"system:node:n1", "system=3Anode=3An1"},
		{"*", "=2A"},
		{">", "=3E"},
		{"a b\n", "a=20b=0A"},
		{"ü", "=C3=BC"},
		{"\xff\x00", "=FF=00"},
		{"_collection", "=5Fcollection"},
		{".collection", "_collection"},
	} {
		if got := event.EscapeToken(c.text); got != c.token {
			t.Errorf("EscapeToken(%q): got %q, want %q", c.text, got, c.token)
		}
		if got, err := event.UnescapeToken(c.token); err != nil || got != c.text {
			t.Errorf("UnescapeToken(%q): got %q, %v, want %q", c.token, got, err, c.text)
		}
	}
}

// UnescapeToken refuses tokens that EscapeToken cannot return, so that no text has two tokens.
func TestUnescapeTokenRefusesWhatEscapingCannotMake(t *testing.T) {
	for _, token := range []string{
		"", "a.b", "a b", "*", "ü", "=", "=4", "a=", "a=2", "=2G", "=+5", "= 5", "=0x",
		"=2e",   // lower case
		"=41",   // "A" needs no escape
		"a=2Eb", // "." is "_" unless it stands alone
	} {
		if got, err := event.UnescapeToken(token); err == nil {
			t.Errorf("%q: accepted as %q", token, got)
		} else if !strings.Contains(err.Error(), token) {
			t.Errorf("%q: the error does not name it: %v", token, err)
		}
	}
}

func anyText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringOf(rapid.RuneFrom([]rune("._=-aA0*>2E:5F"))), // characters that are easily confused by the escaping
		rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
	)
}

func TestEscapeTokenRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anyText().Draw(t, "text")
		token := event.EscapeToken(text)
		if !tokenForm.MatchString(token) {
			t.Fatalf("%q: %q is no token", text, token)
		}
		if got, err := event.UnescapeToken(token); err != nil || got != text {
			t.Fatalf("%q: %q came back as %q, %v", text, token, got, err)
		}
	})
}

// Two objects must never share a subject.
func TestEscapeTokenDoesNotCollide(t *testing.T) {
	seen := map[string]string{}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("._=2E5F")), 0, 4, -1).Draw(t, "text")
		token := event.EscapeToken(text)
		if other, ok := seen[token]; ok && other != text {
			t.Fatalf("%q and %q are both %q", other, text, token)
		}
		seen[token] = text
	})
}

func FuzzToken(f *testing.F) {
	for _, s := range []string{"", "_", "=2E", "=2e", "a=2Eb", "kube_system", "=C3=BC", "=", "a.b", "=5Fcollection"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := event.UnescapeToken(event.EscapeToken(s)); err != nil || got != s {
			t.Errorf("escaped and back: got %q, %v, want %q", got, err, s)
		}
		if text, err := event.UnescapeToken(s); err == nil && event.EscapeToken(text) != s {
			t.Errorf("%q was accepted as %q, which escapes to %q", s, text, event.EscapeToken(text))
		}
	})
}

func TestEscapeHeader(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain/ok:1=2?a&b":  "plain/ok:1=2?a&b",
		`a "b" 100%`:        "a%20%22b%22%20100%25",
		"ü€":                "%C3%BC%E2%82%AC",
		"\r\nX-Evil: 1\x7f": "%0D%0AX-Evil:%201%7F",
		"":                  "",
	} {
		if got := event.EscapeHeader(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) { // a consumer decodes it with what it has
		s := rapid.String().Draw(t, "value")
		if got, err := url.PathUnescape(event.EscapeHeader(s)); err != nil || got != s {
			t.Fatalf("%q came back as %q, %v", s, got, err)
		}
	})
}
