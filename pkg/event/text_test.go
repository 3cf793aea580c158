package event

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTimes: every time is written in TimeFormat.
func TestTimes(t *testing.T) {
	zone := time.FixedZone("", -7*3600)
	for _, at := range []time.Time{
		{},
		time.Unix(0, 0), time.Date(2026, 2, 3, 4, 5, 6, 7_000, zone), time.Date(2026, 12, 31, 23, 59, 59, 999_999_999, zone),
		time.Date(1999, 10, 20, 10, 20, 30, 123_456_789, time.UTC), time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got, want := string(appendTime(nil, at)), at.UTC().Format(TimeFormat); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestPlainStrings: bytes that need an escape are found at every position and next to any other byte.
func TestPlainStrings(t *testing.T) {
	for n := range 18 {
		for at := range n {
			for c := range 256 {
				for _, filler := range []string{"a", " ", "!", "#", "[", "]", "~"} {
					s := strings.Repeat(filler, at) + string([]byte{byte(c)}) + strings.Repeat(filler, n-at-1)
					want := c >= ' ' && c != '"' && c != '\\' && c < 0x7f
					if plain(s) != want {
						t.Fatalf("plain(%q) is %t", s, !want)
					}
				}
			}
		}
	}
}

// TestTextKeepsWhatItMade: a string that Text has returned does not change when Text makes others.
func TestTextKeepsWhatItMade(t *testing.T) {
	var text Text
	var made, want []string
	for i := range 3000 {
		s := strings.Repeat("x", i%70) + strings.Repeat("long", i%1000*9)
		made, want = append(made, text.Of([]byte(s))), append(want, s)
	}
	for i := range made {
		if made[i] != want[i] {
			t.Fatalf("string %d is %q, was %q", i, made[i], want[i])
		}
	}
}

// Values that Text keeps from one event do not appear in the next one.
func TestTextOfTheNextEvent(t *testing.T) {
	first := &Event{Type: Added, Collection: &Collection{Resource: "pods"}, Name: "a", UID: "u", ResourceVersion: "1", Time: time.Unix(1, 0), Run: "7", Incarnation: 7}
	later, reset := *first, *first
	later.Time, reset.Incarnation = time.Unix(2, 0), 8
	var text Text
	encoder := Encoder{Cluster: "c"}.Of(first.Collection)
	for _, e := range []*Event{first, &later, first, &reset, first} {
		got, want := encoder.AppendAttributes(nil, e, &text), Encoder{Cluster: "c"}.Attributes(e)
		if !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
}
