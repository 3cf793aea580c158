package consumer_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/bustest"
	"github.com/kubebridge/kubebridge/test/postgrestest"
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

// recordings returns what readers of 40 random worlds have read. The worlds include restores of etcd, and messages that are
// repeated behind later ones.
func recordings() []*reader {
	record := rapid.Custom(func(t *rapid.T) *reader {
		r := newReader(bustest.New(t, event.Structured))
		r.late = !r.Compacts
		for range 2 {
			for range 60 {
				r.act()
			}
			for r.Drain(); len(r.Wanted) == 0; r.Drain() {
				r.Configure()
			}
			r.Restore()
		}
		r.Drain()
		for _, at := range r.places() {
			for i := len(r.Bus[at]) - 1; i >= 0 && !r.Compacts; i -= 2 {
				r.Bus[at] = append(r.Bus[at], r.Bus[at][i])
			}
		}
		r.readAll()
		r.messages = withForgeries(t, withAttributions(t, r.messages))
		return r
	})
	var all []*reader
	for seed := range 40 {
		all = append(all, record.Example(seed))
	}
	return all
}

// withAttributions adds events that say who made a change: one behind each event of an object, and one of an object whose events a compacted
// topic does not have any more; a refused request for the object, and lost records. No copy may change by them.
func withAttributions(t *rapid.T, messages []consumer.Message) []consumer.Message {
	var all []consumer.Message
	for _, m := range messages {
		all = append(all, m)
		e, err := consumer.Decode(m)
		if err != nil || e.Type.OfCollection() {
			continue
		}
		col := event.ParseCollection(e.Collection)
		who := event.Event{
			Type: event.Attributed, Explained: e.Type, Origin: event.Audit, Time: e.Time, Collection: &col, Run: strconv.FormatUint(e.Run, 10), Incarnation: e.Incarnation, Epoch: e.Epoch,
			APIVersion: e.APIVersion, Kind: e.Kind, Namespace: e.Namespace, ResourceVersion: e.ResourceVersion,
		}
		for _, name := range []string{e.Name, "compacted", "refused", "lost"} {
			who.Name, who.UID = name, name+"-"+e.UID
			if name == e.Name {
				who.UID = e.UID
			}
			explained := who
			explained.Type = e.Type
			who.Attribution = &event.Attribution{Explains: explained.ID(), Request: &event.Request{User: event.User{Name: "alice"}}}
			if name == "refused" {
				who.Type, who.Name, who.UID, who.Kind, who.ResourceVersion, who.RequestID = event.Denied, e.Name, "", "", "", strings.Repeat("0", 32)
				who.Attribution, who.Denial = nil, &event.Denial{Request: event.Request{User: event.User{Name: "mallory"}, Verb: "delete", Code: 403}}
			}
			if name == "lost" {
				who.Type, who.Name, who.UID, who.APIVersion, who.Kind, who.ResourceVersion = event.Lost, "", "", "", "", ""
				who.Attribution, who.Denial, who.Loss = nil, nil, &event.Loss{Until: event.FormatTime(e.Time), Detail: "the file was replaced"}
			}
			encoder := event.Encoder{Cluster: e.Cluster, ClusterUID: e.ClusterUID}
			attributes := encoder.Attributes(&who)
			next := m
			next.Headers = map[string]string{"content-type": event.Structured.ContentType()}
			for _, a := range attributes {
				next.Headers["ce_"+a.Name] = a.Value
			}
			next.Value = event.Structured.Append(nil, attributes, &who)
			if _, err := consumer.Decode(next); err != nil {
				t.Fatalf("%v", err)
			}
			all = append(all, next)
		}
	}
	return all
}

// withForgeries adds events whose numbers or time are far in the future. After the first one that counts, no copy would be complete for good.
func withForgeries(t *rapid.T, messages []consumer.Message) []consumer.Message {
	forged := map[string]string{
		"run": "9999999999999999", "incarnation": "9999999999999999", "birth": "9999999999999999", "plan": "9999999999999999", "edit": "9999999999999999",
		"time": "9999-12-31T23:59:59.000000Z",
	}
	names := slices.Sorted(maps.Keys(forged))
	var all []consumer.Message
	for i, m := range messages {
		all = append(all, m)
		name := names[i%len(names)]
		text := regexp.MustCompile(`"`+name+`":"[^"]*"`).ReplaceAll(m.Value, []byte(`"`+name+`":"`+forged[name]+`"`))
		if i%7 != 0 || bytes.Equal(text, m.Value) {
			continue
		}
		next := m
		next.Value, next.Headers = text, map[string]string{"content-type": event.Structured.ContentType()}
		_, was := consumer.Decode(m)
		if _, err := consumer.Decode(next); was == nil && !errors.Is(err, event.ErrNotEvent) {
			t.Fatalf("%s of the future: %v", name, err)
		}
		all = append(all, next)
	}
	return all
}

// apply takes a message, which may be a dead letter, or forged.
func apply(t *testing.T, s *consumer.State, m consumer.Message) consumer.Change {
	t.Helper()
	change, err := s.Apply(m)
	if err != nil && !errors.Is(err, consumer.ErrNoEvent) && !errors.Is(err, event.ErrNotEvent) {
		t.Fatal(err)
	}
	return change
}

// The page alone is enough to write a consumer: the example was written from it, and agrees with this package after every
// message.
func TestPythonExample(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	var input bytes.Buffer
	var want []string
	complete := 0
	for _, r := range recordings() {
		state := consumer.State{Compacted: r.Compacts}
		for i, m := range r.messages {
			encoded, err := json.Marshal(line{i == 0, r.Compacts, m.Topic, m.Partition, m.Partitions, m.AtEnd, m.Headers, string(m.Value)})
			if err != nil {
				t.Fatal(err)
			}
			input.Write(append(encoded, '\n'))
			change := apply(t, &state, m)
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

// The example for the shell ends with the same objects as this package's copy.
func TestShellExample(t *testing.T) {
	jq, err := exec.LookPath("jq")
	if err != nil {
		t.Skip("jq is not installed")
	}
	objects := 0
	for _, r := range recordings() {
		if r.Compacts { // the example does not see null values
			continue
		}
		var input bytes.Buffer
		var state consumer.State
		var attributions consumer.Attributions
		for _, m := range r.messages {
			input.Write(m.Value)
			input.WriteByte('\n')
			change := apply(t, &state, m)
			attributions.Take(change.Event)
		}
		run := exec.CommandContext(t.Context(), jq, "-rn", "--from-file", "../../examples/shell/fold.jq")
		run.Stdin = &input
		output, err := run.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, err.(*exec.ExitError).Stderr)
		}
		var want []string
		for n, e := range r.state.All() {
			by := ""
			if a := attributions.Of(e); a != nil && a.Request != nil {
				by = fmt.Sprintf(" by %q", a.Request.EffectiveUser().Name)
			}
			want = append(want, fmt.Sprintf("copy %s %s/%s %s %s%s\n", n.Resource, n.Namespace, n.Name, e.UID, e.ResourceVersion, by))
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

// postgresExample returns a PostgreSQL server with the definitions of the example.
func postgresExample(t *testing.T) func(sql string) string {
	t.Helper()
	if !postgrestest.Installed() {
		t.Skip("PostgreSQL is not installed")
	}
	sql := postgrestest.Start(t)
	definitions, err := os.ReadFile("../../examples/sql/postgres.sql")
	if err != nil {
		t.Fatal(err)
	}
	sql(string(definitions))
	return sql
}

// The example for PostgreSQL agrees with this package after every message.
func TestSQLExample(t *testing.T) {
	sql := postgresExample(t)
	complete := 0
	for i, r := range recordings()[:20] {
		if r.Compacts { // the example does not know where a partition ends
			continue
		}
		var script strings.Builder
		script.WriteString("set client_min_messages = error; begin; truncate kubebridge.births, kubebridge.plans, kubebridge.collections, kubebridge.names, kubebridge.progress;\n")
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
			change := apply(t, &state, m)
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

// Kubernetes accepts NUL in strings, and PostgreSQL does not. One object with NUL must not stop a consumer. The copy has U+FFFD
// in its place, and is otherwise unchanged.
func TestSQLExampleTakesNUL(t *testing.T) {
	sql := postgresExample(t)
	data := map[string]string{
		"plain":              "a",
		"nul":                "a\x00b",
		"only nul":           "\x00",
		"many":               "\x00\x00a\x00\x00\x00",
		"written out":        `\u0000`,
		"twice written out":  `\\u0000`,
		"behind a backslash": "\\\x00",
		"behind two":         "\\\\\x00",
		"all of them":        "\x00\\u0000\x00\\\x00\\\\u0000\\\\\x00\"\x00\"",
		"other controls":     "\x01\x02\x1f\x7f\n",
		"replacement":        "\ufffd",
		"key \x00":           "of the key",
		"key \\u0000":        "of the key written out",
	}
	object, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"annotations": data, "name": "a"}, "data": data,
	})
	if err != nil {
		t.Fatal(err)
	}
	e := event.Event{
		Type: event.Added, Collection: &event.Collection{Resource: "configmaps"}, Origin: event.Watch, Time: time.Unix(1, 0),
		APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "7", Run: "2", Incarnation: 1, Object: object,
	}
	encoder := event.Encoder{Cluster: "test", ClusterUID: "c"}
	value := event.Structured.Append(nil, encoder.Attributes(&e), &e)
	sql("insert into kubebridge.inbox values ('configmaps', 0, 1, " + quoted(value) + ");")

	var got, want any
	if err := json.Unmarshal([]byte(sql("select object from kubebridge.objects;")), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(object, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(withoutNUL(want), got); diff != "" {
		t.Errorf("the copy is not the object (-object +copy):\n%s", diff)
	}

	// A header can contain NUL, too, because headers of the configuration are templates.
	sql(`insert into kubebridge.inbox (topic, partition, headers) values ('configmaps', 0, '{"ce_type": "io.kubebridge.resource.deleted.v1",
		"ce_source": "/clusters/test/core/configmaps", "ce_cluster": "test", "ce_collection": "configmaps", "ce_subject": "ns/a", "ce_id": "1",
		"ce_time": "1970-01-01T00:00:01Z", "ce_incarnation": "1", "ce_run": "2", "ce_resourceversion": "7", "ce_resource": "configmaps",
		"ce_namespace": "ns", "ce_name": "a", "ce_uid": "u", "ce_kind": "ConfigMap", "note": "\u0000"}');`)
	if n := strings.TrimSpace(sql("select count(*) from kubebridge.objects;")); n != "0" {
		t.Errorf("%s objects after the deletion", n)
	}
}

// A foreign message must not stop a consumer of PostgreSQL, either.
func TestSQLExampleSkipsOtherMessages(t *testing.T) {
	sql := postgresExample(t)
	for _, value := range []string{`{}`, `{"type":"com.example.other"}`, `{"type":null}`, `[]`, `["type"]`, `"type"`, `1`, `null`} {
		sql("insert into kubebridge.inbox values ('configmaps', 0, 1, " + quoted([]byte(value)) + ");")
	}
	if n := strings.TrimSpace(sql("select count(*) from kubebridge.collections;")); n != "0" {
		t.Errorf("%s collections", n)
	}
}

// withoutNUL returns a decoded JSON value with U+FFFD for NUL in all strings and keys.
func withoutNUL(value any) any {
	replace := func(s string) string { return strings.ReplaceAll(s, "\x00", "\ufffd") }
	switch v := value.(type) {
	case string:
		return replace(v)
	case map[string]any:
		m := map[string]any{}
		for key, item := range v {
			m[replace(key)] = withoutNUL(item)
		}
		return m
	}
	return value
}

// quoted returns a SQL string literal.
func quoted(text []byte) string { return "'" + strings.ReplaceAll(string(text), "'", "''") + "'" }

func describe(state *consumer.State, change consumer.Change) string {
	words := []string{"incomplete"}
	if at, ok := state.Complete("test", "pods"); ok {
		words[0] = "complete " + at.ResourceVersion
	}
	if change.Applied {
		words = append(words, "True")
	} else {
		words = append(words, "False")
	}
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
