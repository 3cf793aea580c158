// Package bus has the buses to which the program under test writes: a Kafka or a
// NATS server in this process, or a consumer of an existing Kafka. A [mark.Tracker]
// counts what was acknowledged to the program.
package bus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/kubebridge/kubebridge/bench/internal/mark"
)

// maxMessage is the largest size of a message, in bytes.
const maxMessage = 8 << 20

// record is an object in a written message. It may not be acknowledged yet.
type record struct {
	mark   mark.Mark
	size   int
	synced bool
}

// appendRecords appends a record for each object in a message, because some programs
// put many objects into one message. All bytes of the message count for the first
// record. The former state of the object, which the bridge writes after the object,
// does not count.
func appendRecords(dst []record, value []byte) []record {
	now, _, _ := bytes.Cut(value, []byte(`,"base":"`))
	m, rest := mark.Find(now)
	if !m.Found {
		return append(dst, record{size: len(value), synced: bytes.Contains(value, []byte("io.kubebridge.collection.synced.v1"))})
	}
	for size := len(value); m.Found; size = 0 {
		dst = append(dst, record{mark: m, size: size})
		m, rest = mark.Find(rest)
	}
	return dst
}

func acknowledge(t *mark.Tracker, records ...record) {
	now := time.Now()
	for _, r := range records {
		if r.mark.Found {
			t.Record(r.mark, r.size, now)
		} else {
			t.Other(r.synced, now)
		}
	}
}

// Control serves the tracker's statistics on a free port of this machine until ctx
// is cancelled: GET /stats (?percentiles=1), POST /reset. It passes the address to
// ready.
func Control(ctx context.Context, t *mark.Tracker, ready func(address string)) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, q *http.Request) {
		_ = json.NewEncoder(w).Encode(t.Stats(q.URL.Query().Has("percentiles")))
	})
	mux.HandleFunc("POST /reset", func(http.ResponseWriter, *http.Request) { t.Reset() })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	ready(listener.Addr().String())
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serve the control address: %w", err)
	}
	return nil
}
