package audit_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

var update = flag.Bool("update", false, "write the golden files")

// The file has what kube-apiserver 1.36.3 logged of requests whose user agents name the level and the request: default is level
// RequestResponse, meta is Metadata, and req is Request.
const realLog = "testdata/apiserver-1.36.jsonl"

// The records of a real API server's log, with all that the join reads of them.
func TestRecordsOfARealAPIServer(t *testing.T) {
	log, err := os.ReadFile(realLog)
	if err != nil {
		t.Fatal(err)
	}
	var b audit.Batch
	audit.NewParser(audit.Options{Denied: true}).Lines(log, &b)
	if b.Unparsable != 0 || b.Events() != bytes.Count(log, []byte("\n")) {
		t.Fatalf("%d of %d events do not parse: %v", b.Unparsable, b.Events(), b.Err)
	}
	var got bytes.Buffer
	for i := range b.Records {
		line, err := json.Marshal(&b.Records[i])
		if err != nil {
			t.Fatal(err)
		}
		got.Write(append(line, '\n'))
	}
	const golden = "testdata/apiserver-1.36.records.jsonl"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Error(diff)
	}
}
