package consumer_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/internal/postgrestest"
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

// recordings are what readers of 40 random worlds have read: etcd is restored, and messages come again, behind later ones.
func recordings() []*reader {
	record := rapid.Custom(func(t *rapid.T) *reader {
		r := newReader(newWorld(t, event.Structured))
		r.late = !r.compacts
		for range 2 {
			for range 60 {
				r.act()
			}
			for r.drain(); len(r.wanted) == 0; r.drain() {
				r.configure()
			}
			r.restore()
		}
		r.drain()
		for _, at := range r.places() {
			for i := len(r.bus[at]) - 1; i >= 0 && !r.compacts; i -= 2 {
				r.bus[at] = append(r.bus[at], r.bus[at][i])
			}
		}
		r.readAll()
		return r
	})
	var all []*reader
	for seed := range 40 {
		all = append(all, record.Example(seed))
	}
	return all
}

// The page alone is enough to write a consumer: the example, which was written from it, agrees with
// this package after every message.
func TestPythonExample(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	var input bytes.Buffer
	var want []string
	complete := 0
	for _, r := range recordings() {
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

// The example for the shell folds messages to the objects that this package's copy has in the end.
func TestShellExample(t *testing.T) {
	jq, err := exec.LookPath("jq")
	if err != nil {
		t.Skip("jq is not installed")
	}
	objects := 0
	for _, r := range recordings() {
		if r.compacts { // it does not see null values
			continue
		}
		var input bytes.Buffer
		for _, m := range r.messages {
			input.Write(m.Value)
			input.WriteByte('\n')
		}
		run := exec.CommandContext(t.Context(), jq, "-rn", "--from-file", "../../examples/shell/fold.jq")
		run.Stdin = &input
		output, err := run.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, err.(*exec.ExitError).Stderr)
		}
		var want []string
		for n, e := range r.state.All() {
			want = append(want, fmt.Sprintf("copy %s %s/%s %s %s\n", n.Resource, n.Namespace, n.Name, e.UID, e.ResourceVersion))
		}
		got := slices.Collect(strings.Lines(string(output)))
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(strings.Join(want, ""), strings.Join(got, "")); diff != "" {
			t.Fatalf("(-package +example):\n%s", diff)
		}
		objects += len(want)
	}
	if objects == 0 {
		t.Fatal("no copy had an object")
	}
}

// The example for PostgreSQL agrees with this package after every message.
func TestSQLExample(t *testing.T) {
	if !postgrestest.Installed() {
		t.Skip("PostgreSQL is not installed")
	}
	sql := postgrestest.Start(t)
	definitions, err := os.ReadFile("../../examples/sql/postgres.sql")
	if err != nil {
		t.Fatal(err)
	}
	sql(string(definitions))
	complete := 0
	for i, r := range recordings()[:20] {
		if r.compacts { // it does not know where a partition ends
			continue
		}
		var script strings.Builder
		script.WriteString("begin; truncate kubebridge.births, kubebridge.plans, kubebridge.collections, kubebridge.names, kubebridge.progress;\n")
		var state consumer.State
		var want []string
		for _, m := range r.messages {
			headers, err := json.Marshal(m.Headers)
			if err != nil {
				t.Fatal(err)
			}
			value := "null"
			if m.Value != nil {
				value = quoted(m.Value)
			}
			fmt.Fprintf(&script, "insert into kubebridge.inbox values (%s, %d, %d, %s, %s);\n", quoted([]byte(m.Topic)), m.Partition, m.Partitions, value, quoted(headers))
			script.WriteString(`select concat_ws(' ', coalesce((select 'complete ' || resourceversion from kubebridge.complete), 'incomplete'),
				(select string_agg(uid || '@' || resourceversion, ' ' order by uid collate "C") from kubebridge.objects));`)
			change, err := state.Apply(m)
			if err != nil && !errors.Is(err, consumer.ErrNoEvent) {
				t.Fatal(err)
			}
			line := strings.Replace(strings.Replace(describe(&state, change), " True", "", 1), " False", "", 1)
			if want = append(want, line); strings.HasPrefix(line, "complete") {
				complete++
			}
		}
		script.WriteString("commit;\n")
		got := strings.Split(strings.TrimSuffix(sql(script.String()), "\n"), "\n")
		for n := range want {
			if n >= len(got) || got[n] != want[n] {
				t.Fatalf("recording %d, message %d of %d: this package has %q, the example has\n%s", i, n, len(want), want[n], strings.Join(got[n:], "\n"))
			}
		}
	}
	if complete == 0 {
		t.Fatal("no copy was ever complete")
	}
}

// quoted is a text in SQL.
func quoted(text []byte) string { return "'" + strings.ReplaceAll(string(text), "'", "''") + "'" }

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
