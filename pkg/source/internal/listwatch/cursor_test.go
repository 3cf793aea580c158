package listwatch

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// A position may be resumed from only after a later resourceVersion was seen: several events can share one resourceVersion
// (Events that expire under one lease), and a bookmark can come between two of them.
func TestCursor(t *testing.T) {
	for _, c := range []struct{ name, from, saw, resume string }{
		{"nothing", "10", "", "10"},
		{"one event", "10", "11", "10"},
		{"each its own", "10", "11 12 15", "10 11 12"},
		{"several at one", "10", "11 12 12 12", "10 11 11 11"},
		{"a bookmark between two of one", "10", "12 12 12 13", "10 10 10 12"},
		{"the bookmark first", "10", "12 12 14", "10 10 12"},
		{"none of its own", "10", "11 - 12", "10 10 11"},
		{"the position again", "10", "10 10 11 12", "10 10 10 11"},
		{"going back", "10", "15 12 15 16", "10 10 10 15"},
		{"more digits", "99", "100 101", "99 100"},
		{"beyond 64 bits", "99999999999999999999", "99999999999999999998 100000000000000000000 100000000000000000001", "99999999999999999999 99999999999999999999 100000000000000000000"},
		{"no numbers", "a", "b b c a", "a a b c"},
		{"from no number", "initial", "11 12", "initial 11"},
		{"to no number", "10", "x y", "10 x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := Cursor{Resume: c.from, Last: c.from}
			resume := []string{}
			for _, rv := range strings.Fields(c.saw) {
				at.Saw(strings.TrimPrefix(rv, "-"))
				resume = append(resume, at.Resume)
			}
			want := strings.Fields(c.resume)
			if c.saw == "" {
				resume = append(resume, at.Resume)
			}
			if !slices.Equal(resume, want) {
				t.Errorf("resume from %v, want %v", resume, want)
			}
		})
	}
}

// Whatever a watch sends, and wherever it breaks off, a watch from the resume position must return every event that was not
// passed on.
func TestCursorLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOf(rapid.IntRange(0, 2)).Draw(t, "steps")
		history, rv := []int{}, 100
		for _, s := range steps {
			rv += s
			history = append(history, rv)
		}
		read := rapid.IntRange(0, len(history)).Draw(t, "read")
		at := Cursor{Resume: "99", Last: "99"}
		for _, rv := range history[:read] {
			at.Saw(strconv.Itoa(rv))
		}
		for _, rv := range history[read:] {
			if !event.Newer(strconv.Itoa(rv), at.Resume) {
				t.Fatalf("%v: %d read, and from %s the event at %d does not come", history, read, at.Resume, rv)
			}
		}
	})
}

// Failures are only counted together if they have the same resourceVersion.
func TestCursorForgetsFailures(t *testing.T) {
	at := Cursor{Resume: "10", Last: "10", Failures: 3}
	at.Saw("11")
	if at.Failures != 3 {
		t.Error("forgotten before there was progress")
	}
	at.Saw("12")
	if at.Failures != 0 {
		t.Error("remembered after there was progress")
	}
}
