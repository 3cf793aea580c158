package status

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

// sample returns the report of a bridge with every kind of value.
func sample() Report {
	earlier := noon.Add(-3 * time.Minute)
	return Report{
		Name: "kubebridge", Version: "v1.2.3", Cluster: "prod-<1>", ClusterUID: "uid", Started: noon.Add(-90 * time.Minute), At: noon,
		ConfigDigest: "0123456789abcdef", Election: &Election{Role: "leader", Identity: "bridge-0", Holder: "bridge-0", Lease: "ns/kubebridge"},
		Buffer: &Buffer{Bytes: 3 << 30, MaxBytes: 10 << 30, Targets: 4, Ended: 1, Aged: 1, Failed: 2, Frames: 98765, Unlisted: 2, Problem: "write ConfigMap bridges/kubebridge-audit-buffer: forbidden"},
		Audit: &Audit{
			Bytes: 12 << 20, MaxBytes: 1 << 30, Records: 4321, Dropped: map[string]uint64{"read": 987, "virtual": 3, "foreign": 0}, Unparsable: 2,
			Refused: map[string]uint64{"full": 5, "client": 0}, Gaps: 1, FileRead: &earlier, Failing: "store records: the audit inbox is full", Since: &earlier,
			LastError: &Trouble{Error: "store records: the audit inbox is full", Advice: "restore the sink that is behind, or raise audit.maxBytes", At: earlier},
		},
		Sinks: []Sink{
			{
				Name: "audit", Bus: "kafka", Address: "kafka:9092", Delivery: "exactly-once", Ready: true, Delivered: 12345,
				LastEvent: &earlier, Queue: Queue{EventCapacity: 4000},
				LastError:   &Trouble{Error: "broker <x> went away", Advice: "nothing", At: earlier},
				Attribution: &Attribution{Waiting: 12, Exact: 3456, Candidates: map[string]uint64{"incomplete": 78, "several": 0}, NoRecord: 9, Dropped: 1, Denied: map[string]uint64{"published": 7, "dropped": 0, "rejected": 0, "lost": 2}, DeniedWaiting: 3},
				Collections: []Collection{
					{ID: "pods", APIVersion: "v1", Kind: "Pod", State: "watching", Since: earlier, Position: "42", Lag: ptr(0.012), LagAt: noon.Add(-30 * time.Second), Objects: ptr(int64(1234)), Gap: &Gap{Reason: "reset", Opened: earlier, Closed: &noon}},
					{ID: "deployments.apps", APIVersion: "apps/v1", Kind: "Deployment", State: "reconciling", Since: earlier, List: &List{Read: 5000, Remaining: ptr(int64(1500))}},
					{ID: "nodes", APIVersion: "v1", Kind: "Node", State: "buffered", Since: earlier, Position: "40", EditWaits: &earlier},
				},
			},
			{
				Name: "live", Ready: false, Failing: "write to the bus: broken pipe", Since: &earlier, Queue: Queue{Events: 3, EventCapacity: 4000, Oldest: &earlier},
				Collections: []Collection{{
					ID: "secrets?namespace=a", State: "waiting", Since: earlier, RetryAt: ptr(noon.Add(7 * time.Second)), Error: "secrets is forbidden",
					LastError: &Trouble{Error: "secrets is forbidden", Advice: "let the bridge list it", At: earlier},
				}},
			},
		},
	}
}

// handler serves the page of a report, with a history of two samples.
func handler(t *testing.T, report func() Report) http.Handler {
	t.Helper()
	h, mux := newHistory(report), http.NewServeMux()
	if err := addPage(mux, Options{Report: report}, h); err != nil {
		t.Fatal(err)
	}
	before := report()
	before.At = before.At.Add(-sampleEvery)
	for i := range before.Sinks {
		before.Sinks[i].Delivered -= min(before.Sinks[i].Delivered, 25)
	}
	h.sample(before)
	h.sample(report())
	return mux
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

// TestGolden compares the page and the JSON with golden files, so that they do not change
// by accident.
func TestGolden(t *testing.T) {
	h := handler(t, sample)
	for path, file := range map[string]string{"/": "testdata/page.golden.html", "/api/status": "testdata/status.golden.json"} {
		got := get(h, path).Body.String()
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not %s: if that is meant, run go test ./internal/operate/status -update", path, file)
		}
	}
}

// TestUnknownIsNotZero: unknown values are not shown as 0.
func TestUnknownIsNotZero(t *testing.T) {
	h := handler(t, func() Report {
		return Report{At: noon, Sinks: []Sink{{Name: "s", Collections: []Collection{{ID: "pods", State: "discovering", Since: noon}}}}}
	})
	rows := newPage(Report{At: noon, Sinks: []Sink{{Name: "s", Collections: []Collection{{ID: "pods", State: "discovering"}}}}}, query{}, newHistory(nil)).Rows
	if r := rows[0]; r.Lag != Unknown || r.Rate != Unknown || r.Objects != Unknown || r.Gap != Unknown || r.Position != Unknown || r.GVK != Unknown {
		t.Errorf("a collection of which nothing is known: %+v", r)
	}
	body := get(h, "/api/status").Body.Bytes()
	for _, name := range []string{`"lag"`, `"objects"`, `"gap"`, `"lastEvent"`} {
		if strings.Contains(string(body), name) {
			t.Errorf("%s is shown, though its value is not known:\n%s", name, body)
		}
	}
}

// TestRowsAreChosen: the filters select rows.
func TestRowsAreChosen(t *testing.T) {
	h := newHistory(nil)
	for query, want := range map[query]string{
		{}:                    "secrets?namespace=a deployments.apps nodes pods",
		{Sort: "name"}:        "deployments.apps nodes pods secrets?namespace=a",
		{Sort: "lag"}:         "pods secrets?namespace=a deployments.apps nodes",
		{Sort: "nonsense"}:    "secrets?namespace=a deployments.apps nodes pods",
		{Text: " DEPLOYment"}: "deployments.apps",
		{State: "watching"}:   "pods",
		{State: "buffered"}:   "nodes",
		{Sink: "live"}:        "secrets?namespace=a",
		{Text: "nothing"}:     "",
	} {
		var got []string
		for _, r := range newPage(sample(), query, h).Rows {
			got = append(got, r.ID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%+v: %q, want %q", query, got, want)
		}
	}
}

// TestStandby: a standby is ready although it delivers nothing, unless it could not
// take over.
func TestStandby(t *testing.T) {
	r := Report{Ready: true, At: noon, Election: &Election{Role: Standby, Holder: "other", Lease: "ns/l"}}
	if p := newPage(r, query{}, newHistory(nil)); p.Word != "standby" || len(p.Troubles) != 0 {
		t.Errorf("a sound standby is %q with %v", p.Word, p.Troubles)
	}
	r.Ready, r.Election.Problem = false, "forbidden"
	if p := newPage(r, query{}, newHistory(nil)); p.Word != "not ready" || len(p.Troubles) != 1 || p.Troubles[0].Error != "forbidden" {
		t.Errorf("a standby without a Lease is %q with %v", p.Word, p.Troubles)
	}
}

// TestOnlyReads: only GET and HEAD are allowed, and the headers keep a
// browser from loading anything from another server.
func TestOnlyReads(t *testing.T) {
	h := handler(t, sample)
	for _, path := range []string{"/", "/api/status", "/page.css"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s answers %d", method, path, w.Code)
			}
		}
		if csp := get(h, path).Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
	body := get(h, "/").Body.String()
	if strings.Contains(body, "prod-<1>") || strings.Contains(body, "broker <x>") || strings.Contains(body, "://") {
		t.Error("the page holds text unescaped, or an address of elsewhere")
	}
	if get(h, "/other").Code != http.StatusNotFound {
		t.Error("an unknown path is answered")
	}
}

// TestHistoryIsBounded: only the samples of an hour are kept, and those of removed
// sinks and collections are dropped.
func TestHistoryIsBounded(t *testing.T) {
	h := newHistory(nil)
	r := Report{At: noon}
	for i := range 3 * samples {
		r.At = r.At.Add(sampleEvery)
		r.Sinks = []Sink{{Name: "s", Delivered: uint64(50 * i), Collections: []Collection{{ID: fmt.Sprint("c", i/samples), Delivered: uint64(10 * i)}}}}
		h.sample(r)
	}
	if len(h.pointsOf("s")) != samples || len(h.counts) != 2 {
		t.Errorf("%d points and %d counters are kept", len(h.pointsOf("s")), len(h.counts))
	}
	h.complete(&r)
	if s := r.Sinks[0]; s.Rate == nil || *s.Rate != 5 || s.Collections[0].Rate == nil || *s.Collections[0].Rate != 1 || s.Lag != nil {
		t.Errorf("rates: %+v", s)
	}
	r.At = r.At.Add(sampleEvery)
	r.Sinks[0].Delivered = 3 // it restarted
	h.sample(r)
	if h.complete(&r); r.Sinks[0].Rate != nil {
		t.Errorf("a rate of %v over a restart", *r.Sinks[0].Rate)
	}
}

// TestHistorySamples takes one at once and one every ten seconds.
func TestHistorySamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		h := newHistory(func() Report {
			now := time.Now()
			oldest := begun
			return Report{At: now, Sinks: []Sink{{Name: "s", Delivered: uint64(now.Sub(begun).Seconds()) * 2, Queue: Queue{Oldest: &oldest}}}}
		})
		done := make(chan struct{})
		go func() { h.Run(t.Context()); close(done) }()
		time.Sleep(35 * time.Second)
		points := h.pointsOf("s")
		if len(points) != 4 || points[0].rate != nil || *points[3].rate != 2 || *points[3].lag != 30 {
			t.Errorf("after 35 s: %+v", points)
		}
		if all := h.total(); len(all) != 4 || *all[3].rate != 2 {
			t.Errorf("all sinks: %+v", all)
		}
	})
}

// People see what a status says: an edit that waits, what the disk buffer could not do, and which audit records are missing.
func TestWords(t *testing.T) {
	now := time.Now()
	before := now.Add(-2 * time.Minute)
	for want, got := range map[string]string{
		"buffered":                              (&Collection{State: Buffered}).Words(),
		"buffered, changed configuration waits": (&Collection{State: Buffered, EditWaits: &now}).Words(),
		"0 B of 1.0 KiB":                        (&Buffer{MaxBytes: 1 << 10}).Words(),
		"0 B of 1.0 KiB, 2 could not begin since the start":                                                   (&Buffer{MaxBytes: 1 << 10, Failed: 2}).Words(),
		"0 B of 1.0 KiB, 3 watches recorded, 2 of them ended, 1 of them have lost what was older than maxAge": (&Buffer{MaxBytes: 1 << 10, Targets: 3, Ended: 2, Aged: 1}).Words(),
		"0 B of 1.0 KiB, 0 records stored":                                                                    (&Audit{MaxBytes: 1 << 10, Dropped: map[string]uint64{"read": 0}}).Words(now),
		"0 B of 1.0 KiB, 7 records stored, 1,002 events not needed (1,000 read, 2 virtual), 3 unparsable, 4 requests refused (4 full), 1 gap, file read as of 2 min ago, failing: disk (for 2 min)": (&Audit{
			MaxBytes: 1 << 10, Records: 7, Dropped: map[string]uint64{"read": 1000, "virtual": 2}, Unparsable: 3, Refused: map[string]uint64{"full": 4, "client": 0}, Gaps: 1,
			FileRead: &before, Failing: "disk", Since: &before,
		}).Words(now),
		"0 B of 1.0 KiB, 9 records stored, sink away needs the oldest (8 records)": (&Audit{MaxBytes: 1 << 10, Records: 9, Needed: map[string]uint64{"away": 8, "works": 2}}).Words(now),
		"0 exact, 0 waiting": (&Attribution{}).Words(),
		"5 exact, 7 with candidates (4 incomplete, 3 several), 2 without a record, 1 dropped, 6 waiting": (&Attribution{
			Waiting: 6, Exact: 5, Candidates: map[string]uint64{"several": 3, "incomplete": 4}, NoRecord: 2, Dropped: 1,
		}).Words(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What is over says nothing about now: a row without trouble shows neither an old error nor the lag of an old event.
func TestWhatIsOver(t *testing.T) {
	for _, c := range []struct {
		ago      time.Duration
		err, lag bool
	}{{time.Minute, true, true}, {2 * time.Minute, true, false}, {7 * time.Minute, false, false}} {
		h := handler(t, func() Report {
			r := sample()
			pods := &r.Sinks[0].Collections[0]
			pods.LagAt = noon.Add(-c.ago)
			for _, at := range []**Trouble{&pods.LastError, &r.Sinks[0].LastError} {
				*at = &Trouble{Error: "it went away", Advice: "wait", At: noon.Add(-c.ago)}
			}
			return r
		})
		page := get(h, "/").Body.String()
		if n := strings.Count(page, "it went away"); (n == 2) != c.err || (n == 0) == c.err {
			t.Errorf("%v ago: the page has the error %d times", c.ago, n)
		}
		var r Report
		if err := json.Unmarshal(get(h, "/api/status").Body.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		pods := r.Sinks[0].Collections[0]
		if (pods.Lag != nil) != c.lag || pods.LastError == nil {
			t.Errorf("%v ago: the lag is %v, and the last error %v", c.ago, pods.Lag, pods.LastError)
		}
	}
}

// Who opens the status of a standby learns that it is one, who leads, and how to reach the leader: a Service may select both.
func TestStandbyNamesTheLeader(t *testing.T) {
	r := Report{At: noon, Ready: true, Election: &Election{Role: Standby, Identity: "bridge-1_b", Holder: "bridge-0_a"}, LeaderStatus: "run kubectl port-forward bridge-0", Sinks: []Sink{}}
	h := handler(t, func() Report { return r })
	page, text := get(h, "/").Body.String(), get(h, "/api/status").Body.String()
	if strings.Contains(page, "No collection yet") || !strings.Contains(page, "is a standby") || !strings.Contains(page, "bridge-0_a") || !strings.Contains(page, r.LeaderStatus) {
		t.Errorf("the page is\n%s", page)
	}
	if !strings.Contains(text, `"leaderStatus": "run kubectl port-forward bridge-0"`) {
		t.Errorf("the API says\n%s", text)
	}
	r.Election.Holder, r.LeaderStatus = "", ""
	if page := get(h, "/").Body.String(); !strings.Contains(page, "no replica leads at the moment") {
		t.Errorf("without a leader the page is\n%s", page)
	}
}
