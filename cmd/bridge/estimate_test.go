package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/internal/operate/estimate"
)

// An estimate counts the records that a sink would get: those of the first list and of changes separately, after filters, by resource and by object.
func TestEstimate(t *testing.T) {
	changed := func(version int) string {
		return fmt.Sprintf(`{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop","uid":"5b8f1c34-7a2e-4c8a-9f39-0e1f8f2f4a11","resourceVersion":"%d","labels":{"n":"%d"}}}}`+"\n", version, version)
	}
	smallCluster(t, changed(43), changed(44), changed(45))
	path := twoBuses(t)
	got := command(t, "estimate", "-c", path, "--for", "500ms", "-o", "json")
	var e estimate.Estimate
	if err := json.Unmarshal([]byte(got.out), &e); err != nil || got.code != exitOK || !strings.Contains(got.err, "the first lists are complete; watching for 500ms") {
		t.Fatalf("code %d, %v\n%s%s", got.code, err, got.out, got.err)
	}
	if len(e.Sinks) != 2 || e.Watched < 0.5 || len(e.Troubled) > 0 || e.Values.Memory == "" {
		t.Fatalf("%+v", e)
	}
	kafka, nats := e.Sinks[0], e.Sinks[1]
	if kafka.Sink != "audit" || kafka.Bus != "kafka" || kafka.Partitions != 1 || nats.Partitions != 0 || kafka.CheckpointBytes < 100 {
		t.Errorf("%+v\n%+v", kafka, nats)
	}
	for _, s := range e.Sinks {
		if len(s.Resources) != 1 || len(s.Loudest) != 1 {
			t.Fatalf("%+v", s)
		}
		r, o := s.Resources[0], s.Loudest[0]
		// The filter passes one pod. The versions 43 and 44 may be read before the list is complete.
		if r.Resource != "pods" || r.Objects != 1 || r.FirstListBytes < 500 || r.Changes < 1 || r.Changes > 3 || !r.Complete || r.ChangesPerSecond <= 0 || r.BytesPerDay < float64(r.Changes)*500 {
			t.Errorf("%s: %+v", s.Sink, r)
		}
		if o.Resource != "pods" || o.Namespace != "shop" || o.Name != "a" || o.Changes != r.Changes {
			t.Errorf("%s: %+v", s.Sink, o)
		}
		if s.BufferADay != r.BytesPerDay/4 || s.BufferAList != float64(r.FirstListBytes)/4 {
			t.Errorf("%s: the buffer takes %.0f bytes a day and %.0f bytes for a list, want a quarter of %+v", s.Sink, s.BufferADay, s.BufferAList, r)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("beside the configuration there is %v, %v", left, err)
	}
}

// The printed tables, and the printed values for the chart.
func TestEstimatePrinted(t *testing.T) {
	smallCluster(t)
	path := twoBuses(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(text), "resources:\n", "resources:\n  - widgets.example.com\n", 1))
	got := command(t, "estimate", "-c", path, "--for", "10ms")
	for _, part := range []string{"sink audit (kafka)\n", "\npods ", "\nall ", "\nkafka.create.partitions: 1 ", "\nbuffer.maxBytes: about ", "could not be read: widgets.example.com: ", "\nresources:\n  requests: {cpu: ", "Mi}\n"} {
		if !strings.Contains(got.out, part) {
			t.Errorf("it does not say %q:\n%s%s", part, got.out, got.err)
		}
	}
	command(t, "estimate", "-c", path, "--for", "0s").failed(t, exitConfig, "--for 0s")
	command(t, "estimate", "-c", path, "-o", "yaml").failed(t, exitConfig, "-o yaml")
}
