package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/operate/inspect"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/internal/operate/status/console"
	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/internal/past/history/report"
	"github.com/kubebridge/kubebridge/internal/past/history/restore"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// hostile clears the screen, forges a line, sets a title, and reverses the direction of the text
// that follows.
const hostile = "x\x1b[2J\nADDED forged\r\u009b31m\x1b]0;title\x07\u202egnp"

// TestHostileText: control characters in names and values from the cluster are not written
// to a terminal.
func TestHostileText(t *testing.T) {
	before, after := []byte(`{"a":"b","--gone":1}`), quoted(t, map[string]any{"a": hostile, hostile: 1})
	diff, err := history.Diff(before, after)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := history.Paths(before, after)
	if err != nil {
		t.Fatal(err)
	}
	state := &history.State{
		Objects: []history.Object{{Received: &event.Received{Namespace: hostile, Name: hostile, Object: after, BodyKnown: false}, ResourceID: hostile}},
		Missing: []history.Missing{{Name: hostile, Why: hostile, LeftOut: true}},
		Collections: []history.Covered{{
			Collection: hostile, BaseRV: hostile, Silent: true, Behind: true, Gap: &event.Received{Report: &event.Report{Reason: hostile}},
		}},
	}
	for name, printed := range map[string]struct {
		lines int
		print func(w *bytes.Buffer) error
	}{
		"history": {2 + 1 + 2 + 1 + 6 + 1, func(w *bytes.Buffer) error {
			return report.Change(w, &history.Change{
				Time: time.Unix(0, 0), Type: hostile, Resource: hostile, Namespace: hostile, Name: hostile, UID: hostile, FormerUID: hostile,
				ResourceVersion: hostile, Origin: event.Origin(hostile), By: []history.Who{{Manager: hostile, Subresource: hostile}}, Note: hostile, Diff: diff,
				Attribution: &event.Attribution{Reason: hostile, Candidates: []event.Request{{User: event.User{Name: hostile}, SourceIPs: []string{hostile}, UserAgent: hostile}}},
			}, false)
		}},
		"notes of a state":  {5, func(w *bytes.Buffer) error { report.Coverage(w, state, history.Point{}); return nil }},
		"what is not whole": {1, func(w *bytes.Buffer) error { return report.State(t.Context(), new(bytes.Buffer), w, state, "json") }},
		"differences": {2 + len(paths), func(w *bytes.Buffer) error {
			return report.Difference(w, &history.Difference{Objects: []history.ObjectDifference{{What: "changed", Resource: hostile, Name: hostile, Paths: paths}}})
		}},
		"restored": {1, func(w *bytes.Buffer) error {
			report.Restored(w, restore.Line{What: restore.Failed, Object: hostile, Why: hostile})
			return nil
		}},
		"status": {3 + 2 + 1 + 2 + 1, func(w *bytes.Buffer) error {
			return console.Print(w, &status.Report{Name: hostile, Cluster: hostile, Version: hostile, Waiting: hostile, Election: &status.Election{Holder: hostile}, Sinks: []status.Sink{{
				Name: hostile, Failing: hostile, Collections: []status.Collection{{ID: hostile, State: hostile, Error: hostile, Position: hostile}},
			}}}, nil)
		}},
		"top": {1 + 1 + 2 + 1 + 2, func(w *bytes.Buffer) error {
			return console.PrintRates(w, &status.Report{Name: hostile, Cluster: hostile, Sinks: []status.Sink{{
				Name: hostile, Collections: []status.Collection{{ID: hostile, State: hostile}},
			}}}, nil)
		}},
		"checkpoint": {1 + 1 + 2 + 1 + 1, func(w *bytes.Buffer) error {
			i := inspect.Checkpoint{
				Path: hostile, Identity: event.Identity{Cluster: hostile}, Epochs: map[string]uint64{hostile: 1}, Owed: []string{hostile},
				Collections: []inspect.Collection{{ID: hostile, Position: hostile, Phase: hostile, InDoubt: &inspect.Doubt{Events: []string{"gap"}}}},
			}
			return i.Print(w)
		}},
		"log": {1, func(w *bytes.Buffer) error {
			newLogger("console", zap.InfoLevel, w).Info(hostile, zap.String("name", hostile), zap.Error(errors.New(hostile)))
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := printed.print(&out); err != nil {
				t.Fatal(err)
			}
			text := out.String()
			if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%q passes", text[i:])
			}
			lines := strings.Count(text, "\n")
			if name == "log" {
				lines -= strings.Count(text, "\nADDED forged") // a console log keeps line ends
			}
			if lines != printed.lines {
				t.Errorf("%d lines, want %d:\n%s", lines, printed.lines, text)
			}
			if !strings.Contains(text, "gnp") {
				t.Errorf("the name is not shown: %s", text)
			}
		})
	}
	if r := command(t, "history", "pods", hostile); r.code != exitConfig || strings.ContainsAny(r.err, "\x1b\r") {
		t.Errorf("an error: %d, %q", r.code, r.err)
	}
}

// TestJSONLogIsALine: text from the cluster cannot forge a line of a JSON log.
func TestJSONLogIsALine(t *testing.T) {
	var out bytes.Buffer
	newLogger("json", zap.InfoLevel, &out).Info(hostile, zap.String("name", hostile))
	var line struct{ Msg, Name string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Msg != hostile || line.Name != hostile || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%q: %v", out.String(), err)
	}
}

// TestDocumentIntoAFile: output to a file or a pipe is not escaped.
func TestDocumentIntoAFile(t *testing.T) {
	var out bytes.Buffer
	if _, err := document(&out).Write([]byte(hostile)); err != nil || out.String() != hostile {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func quoted(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
