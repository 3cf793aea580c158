package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Status has the fields of the body of /readyz that the tests need.
type Status struct {
	Ready        bool         `json:"ready"`
	Waiting      string       `json:"waiting"`
	Election     Election     `json:"election"`
	LeaderStatus string       `json:"leaderStatus"` // of a standby: how to reach the leader's
	Sinks        []SinkStatus `json:"sinks"`
	Buffer       *Buffer      `json:"buffer"`
}

// Buffer is the state of the disk buffer.
type Buffer struct {
	Bytes   int64  `json:"bytes"`
	Targets int    `json:"targets"`
	Ended   int    `json:"ended"`
	Frames  uint64 `json:"frames"`
}

// Election is the state of the leader election.
type Election struct {
	Role     string `json:"role"` // leader or standby
	Identity string `json:"identity"`
	Holder   string `json:"holder"`
	Problem  string `json:"problem"`
}

// SinkStatus is the state of one sink.
type SinkStatus struct {
	Name        string       `json:"name"`
	Ready       bool         `json:"ready"`
	Failing     string       `json:"failing"`
	Foreign     uint64       `json:"foreign"` // messages that the bridge did not write
	Collections []Collection `json:"collections"`
}

// Collection is the state of one collection.
type Collection struct {
	ID       string     `json:"id"`
	State    string     `json:"state"`
	Error    string     `json:"error"`
	Position string     `json:"position"` // resourceVersion up to which all changes are delivered
	Synced   *time.Time `json:"synced"`
	// EditWaits is since when an edit waits for the disk buffer; nil: none waits.
	EditWaits *time.Time `json:"editWaits"`
}

// Find returns the collection with the ID of the first sink that has it; the zero value if there is none.
func (s Status) Find(id string) Collection {
	for _, sink := range s.Sinks {
		for _, c := range sink.Collections {
			if c.ID == id {
				return c
			}
		}
	}
	return Collection{}
}

// Status requests the status of the running bridge. ctx bounds the wait for the status server and the answer.
func (p *Process) Status(ctx context.Context) (Status, error) {
	var s Status
	code, body, err := p.Get(ctx, "/readyz")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fmt.Errorf("ask /readyz: %w", err)
	}
	want := http.StatusServiceUnavailable
	if s.Ready {
		want = http.StatusOK
	}
	if code != want {
		return s, fmt.Errorf("ask /readyz: status %d with ready=%t", code, s.Ready)
	}
	return s, nil
}

// Get requests a path from the running bridge's status server. ctx bounds the wait for the server to listen. It then has ten seconds to answer.
func (p *Process) Get(ctx context.Context, path string) (code int, body []byte, err error) {
	select {
	case <-p.listen:
	case <-p.done:
		return 0, nil, fmt.Errorf("the bridge ended with exit code %d", p.cmd.ProcessState.ExitCode())
	case <-ctx.Done():
		return 0, nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.status+path, nil)
	if err != nil {
		return 0, nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, fmt.Errorf("ask %s: %w", path, err)
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err != nil {
		return 0, nil, fmt.Errorf("ask %s: %w", path, err)
	}
	return res.StatusCode, body, nil
}

// Await polls the status until wanted returns true.
func (p *Process) Await(ctx context.Context, wanted func(Status) bool) error {
	for {
		s, err := p.Status(ctx)
		if err == nil && wanted(s) {
			return nil
		}
		if !p.Running() {
			return fmt.Errorf("the bridge has ended, with exit code %d (%v)", p.cmd.ProcessState.ExitCode(), err)
		}
		select {
		case <-time.After(30 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: /readyz says %+v (%v)", context.Cause(ctx), s, err)
		}
	}
}
