package consumer_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// line is one message as testdata/replay.py reads it.
type line struct {
	Begin      bool              `json:"begin"`
	Compacted  bool              `json:"compacted"`
	Topic      string            `json:"topic"`
	Partition  int               `json:"partition"`
	Partitions int               `json:"partitions"`
	AtEnd      bool              `json:"at_end"`
	Headers    map[string]string `json:"headers"`
	Value      string            `json:"value"`
}

// The page alone is enough to write a consumer: the example, which was written from it, agrees with
// this package after every message.
func TestPythonExample(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	record := rapid.Custom(func(t *rapid.T) *reader {
		r := newReader(newWorld(t, event.Structured))
		r.late = !r.compacts
		for range 120 {
			r.act()
		}
		r.drain()
		r.readAll()
		return r
	})
	var input bytes.Buffer
	var want []string
	complete := 0
	for seed := range 40 {
		r := record.Example(seed)
		state := consumer.State{Compacted: r.compacts}
		for i, m := range r.messages {
			encoded, err := json.Marshal(line{i == 0, r.compacts, m.Topic, m.Partition, m.Partitions, m.AtEnd, m.Headers, string(m.Value)})
			if err != nil {
				t.Fatal(err)
			}
			input.Write(append(encoded, '\n'))
			change, err := state.Apply(m)
			if err != nil && !errors.Is(err, consumer.ErrNoEvent) {
				t.Fatal(err)
			}
			want = append(want, describe(&state, change))
			if strings.HasPrefix(want[len(want)-1], "complete") {
				complete++
			}
		}
	}
	if complete == 0 {
		t.Fatal("no copy was ever complete")
	}
	run := exec.CommandContext(t.Context(), python, "-B", "testdata/replay.py", "../../examples/python")
	run.Stdin = &input
	output, err := run.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, err.(*exec.ExitError).Stderr)
	}
	got := strings.Split(strings.TrimSpace(string(output)), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d lines for %d messages", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("message %d: the example has %q, this package has %q", i, got[i], want[i])
		}
	}
}

func describe(state *consumer.State, change consumer.Change) string {
	words := []string{"incomplete"}
	if at, ok := state.Complete("test", "pods"); ok {
		words[0] = "complete " + at.ResourceVersion
	}
	words = append(words, map[bool]string{true: "True", false: "False"}[change.Event != nil])
	var objects []string
	for _, e := range state.All() {
		objects = append(objects, fmt.Sprintf("%s@%s", e.UID, e.ResourceVersion))
	}
	slices.SortFunc(objects, func(a, b string) int {
		a, _, _ = strings.Cut(a, "@")
		b, _, _ = strings.Cut(b, "@")
		return strings.Compare(a, b)
	})
	return strings.Join(append(words, objects...), " ")
}
