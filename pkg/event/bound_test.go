package event_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// The names in events are bounded for any name of an object, and are different for different objects, even if they differ only in
// the part that is cut.
func TestBoundNames(t *testing.T) {
	names := []string{"", "web", strings.Repeat("n", 1100), strings.Repeat("n", event.MaxName)}
	for _, name := range names {
		if got := event.BoundName(name); got != name || !event.WholeName(name) {
			t.Errorf("a name of %d bytes becomes %.80q", len(name), got)
		}
	}
	seen := map[string]bool{}
	for _, name := range []string{
		strings.Repeat("n", event.MaxName+1), strings.Repeat("n", event.MaxName+2), strings.Repeat("n", 180_000), strings.Repeat("n", 180_000) + "m",
		strings.Repeat("é:", 100_000), strings.Repeat("\U0001F512", 1000) + "x",
	} {
		got := event.BoundName(name)
		prefix, _, _ := strings.Cut(got, "%")
		switch {
		case len(got) > event.MaxName, !utf8.ValidString(got), seen[got], !strings.HasPrefix(name, prefix), len(prefix) < 1020:
			t.Errorf("a name of %d bytes becomes %.80q, of %d bytes", len(name), got, len(got))
		case event.WholeName(got), event.WholeName(name), event.BoundName(got) != got:
			t.Errorf("%.80q counts as whole", got)
		}
		seen[got] = true
	}
}

func TestSubjectToken(t *testing.T) {
	for _, whole := range []string{"", "web.a", strings.Repeat("a", 63) + "." + strings.Repeat("b", 189), strings.Repeat(":", 84)} {
		if got := event.SubjectToken(whole); got != event.EscapeToken(whole) {
			t.Errorf("%q becomes %q", whole, got)
		}
	}
	const want = "=sha256-"
	seen := map[string]bool{}
	for _, long := range []string{strings.Repeat("a", 254), strings.Repeat(":", 85), strings.Repeat("n", 1100), strings.Repeat("n", 1101)} {
		got := event.SubjectToken(long)
		if !strings.HasPrefix(got, want) || len(got) != len(want)+64 || seen[got] || !tokenForm.MatchString(got) {
			t.Errorf("%.20q of %d bytes becomes %q", long, len(long), got)
		}
		if text, err := event.UnescapeToken(got); err == nil {
			t.Errorf("%q is also the token of %q", got, text)
		}
		seen[got] = true
	}
	// `printf %0300d 0 | sha256sum` prints this digest.
	if got := event.SubjectToken(strings.Repeat("0", 300)); got != want+"b384feb94474000a17205b085aa775b987e743276ec4d73ed2a044217b10cd60" {
		t.Errorf("a token is %s", got)
	}
}
