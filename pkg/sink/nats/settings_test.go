package nats

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A setting that does not break the guarantee is reported, in one line with its value, the recommended value and the remedy.
// The bridge continues.
func TestDriftIsSaid(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	_, err := b.client(t).CreateStream(t.Context(), jetstream.StreamConfig{
		Name: streamName, Subjects: []string{"k8s.test.>"}, Storage: jetstream.MemoryStorage, MaxAge: time.Hour, MaxBytes: 1 << 20,
		MaxMsgSize: 1000, Discard: jetstream.DiscardNew, Duplicates: time.Second,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "k8s.test.none", Destination: "k8s.test.some"},
	})
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.WarnLevel)
	c := Config{URL: b.url(), Delivery: atLeastOnce, Stream: Stream{Replicas: 3, MaxAge: 2 * time.Hour, MaxBytes: 1 << 30}}
	s, err := New(Options{Config: c, Identity: testIdentity, Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // always nil
	mustOpen(t, s, nil)
	got := map[string]string{}
	for _, e := range logs.All() {
		fields := e.ContextMap()
		if fields["stream"] != streamName || fields["advice"] == "" {
			t.Errorf("a line without stream or advice: %v", fields)
		}
		setting, _, _ := strings.Cut(strings.TrimPrefix(fields["found"].(string), "its "), " ")
		got[setting] = fields["want"].(string)
	}
	for setting, want := range map[string]string{
		"storage": "file", "num_replicas": "3", "max_age": "2h0m0s", "max_bytes": "1073741824", "max_msg_size": "-1",
		"discard": "old", "duplicate_window": "2m0s", "it": "none",
	} {
		if got[setting] != want {
			t.Errorf("%s: want %q, the log says %q", setting, want, got[setting])
		}
	}
	mustWrite(t, s, records(1, 1))
}

// On a stream that keeps only the last messages of a subject, two entries with the same subject for an object lose messages
// without any gap that a consumer could notice.
func TestLimitPerSubjectIsSaid(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]bool{
		defaultSubject: false, "k8s.{entry}.{cluster}.{name}": false, "k8s.{cluster}.{name}": true,
	} {
		l := link{endpoint: &endpoint{config: Config{Delivery: atLeastOnce, Subject: subject}}}
		breaks, weak := l.judge(jetstream.StreamConfig{MaxMsgsPerSubject: 1, Duplicates: duplicateWindow, Storage: jetstream.FileStorage})
		said := slices.ContainsFunc(weak, func(f finding) bool { return strings.Contains(f.found, "{entry}") })
		if said != want || len(breaks) > 0 {
			t.Errorf("subject %q: said is %t, want %t; refused: %v", subject, said, want, breaks)
		}
	}
}
