package scan_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/internal/base/scan"
)

// values returns every value of a text, each read within the container around it.
func values(t testing.TB, text []byte, reset func(s *scan.Scanner, text []byte)) (all [][]byte) {
	var s scan.Scanner
	reset(&s, text)
	var inner [][]byte
	each := func() error {
		v, err := s.Value()
		inner = append(inner, v)
		return err
	}
	var err error
	switch c, _ := s.Peek(); c {
	case '{':
		err = s.Members(func([]byte, int) error { return each() })
	case '[':
		err = s.Elements(each)
	}
	if err != nil {
		t.Fatalf("%v in %.100s", err, text)
	}
	for _, v := range inner {
		all = append(append(all, v), values(t, v, reset)...)
	}
	return all
}

func sameWithin(t testing.TB, text []byte) {
	var ends scan.Ends
	ends.Find(text)
	want := values(t, text, (*scan.Scanner).Reset)
	got := values(t, text, func(s *scan.Scanner, text []byte) { s.ResetWithin(text, &ends) })
	if len(want) != len(got) {
		t.Fatalf("%d values, want %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(want[i], got[i]) {
			t.Fatalf("%.200s, want %.200s", got[i], want[i])
		}
	}
}

// TestEnds: skipping a value ends where reading it ends.
func TestEnds(t *testing.T) {
	long := strings.Repeat("x", 70)
	for _, text := range []string{
		`1`, `{}`, `[]`, `"}"`,
		`{"a":{"` + long + `":[1,{"b":"]}\"\\","c":{}}]},"d":["\\",` + strings.Repeat(`"\"",`, 30) + `"\\\""]}`,
		"[ {\n\"a\" : [ \"" + long + "\" , {} ] } , [ ] , {\"b\" : \"" + long + "\"} ]",
	} {
		sameWithin(t, []byte(text))
	}
	files, err := filepath.Glob("testdata/*.ndjson")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			sameWithin(t, bytes.TrimSpace(line))
		}
	}
}

// TestEndsOfAnotherText: recorded ends are not used for another text. Skipping a value with a recorded end costs
// nothing.
func TestEndsOfAnotherText(t *testing.T) {
	text := []byte(`[{"a":"` + strings.Repeat("x", 100) + `"},{"b":2}]`)
	var ends scan.Ends
	ends.Find(text)
	steps := func(text []byte) int64 {
		var s scan.Scanner
		s.ResetWithin(text, &ends)
		if err := s.Elements(func() error { _, err := s.Value(); return err }); err != nil {
			t.Fatal(err)
		}
		return s.Steps()
	}
	if n := steps(bytes.Clone(text)); n != int64(len(text)) {
		t.Errorf("a text that is equal: %d steps, want %d", n, len(text))
	}
	if n := steps(text); n > 20 {
		t.Errorf("the text itself: %d steps", n)
	}
	ends.Forget()
	if n := steps(text); n != int64(len(text)) {
		t.Errorf("once it is forgotten: %d steps, want %d", n, len(text))
	}
}
