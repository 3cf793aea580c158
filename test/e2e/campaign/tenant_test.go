package campaign

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// A bridge through which a tenant delays others is reported. A machine that is slow for everybody is not the bridge's fault.
func TestDelayIsJudged(t *testing.T) {
	for _, c := range []struct {
		changes          int
		ordinary, beside time.Duration
		wrong            bool
	}{
		{judgedFrom, 40 * time.Millisecond, 120 * time.Millisecond, false},
		{judgedFrom, 40 * time.Millisecond, 121 * time.Millisecond, true},
		{judgedFrom, time.Millisecond, costliest, false},
		{judgedFrom, time.Millisecond, costliest + 1, true},
		{judgedFrom - 1, time.Millisecond, time.Hour, false}, // too few changes to judge
	} {
		d := AllDelays{Without: Delays{Changes: c.changes, P99: time.Microsecond}, Ordinary: Delays{Changes: c.changes, P99: c.ordinary}, Beside: Delays{Changes: c.changes, P99: c.beside}}
		if problems := d.judge(); (len(problems) > 0) != c.wrong {
			t.Errorf("%+v: the problems are %v, want one: %t", c, problems, c.wrong)
		}
	}
}

// Delays are measured for the changes of the other users, by the calm in which a change was made, and until its first event arrived.
func TestDelays(t *testing.T) {
	begun := time.Now()
	after := func(d time.Duration) time.Time { return begun.Add(d) }
	n := &nemesis{world: &world{ns: "c", bus: &busUnderTest{}}}
	n.calms[ordinary] = []span{{begun, after(time.Minute)}, {after(3 * time.Minute), after(4 * time.Minute)}}
	n.calms[beside] = []span{{after(5 * time.Minute), after(6 * time.Minute)}}
	l := newLedger()
	var messages []bus.Message
	write := func(name, uid string, rv uint64, answered, published time.Time) {
		l.objects[uid] = &object{typ: target{Type: kube.ConfigMaps}, name: name, uid: uid, versions: []version{{rv: rv, at: answered}}}
		messages = append(messages, bus.Message{At: published, Attributes: map[string]string{"uid": uid, "resourceversion": fmt.Sprint(rv), "time": published.Format(time.RFC3339Nano)}})
	}
	for i := range 100 {
		write("c/a", fmt.Sprint("a", i), 10, after(time.Second), after(time.Second+time.Duration(i)*time.Millisecond))
	}
	write("c-tenant/b", "b", 11, after(time.Second), after(time.Hour))
	write("c/before", "before", 12, after(-time.Second), after(time.Hour))
	write("c/after", "after", 13, after(2*time.Minute), after(time.Hour))
	write("c/early", "early", 14, after(time.Second), after(0)) // on the bus before the API server had answered
	write("c/later", "later", 15, after(3*time.Minute), after(3*time.Minute))
	write("c/beside", "beside", 16, after(5*time.Minute), after(5*time.Minute+time.Second))
	again := messages[0]
	again.At = after(time.Hour)
	d, err := n.delays(t.Context(), l, append(messages, again))
	if err != nil {
		t.Fatal(err)
	}
	if c := d.Ordinary; c.Changes != 102 || c.P50 != 49*time.Millisecond || c.P99 != 98*time.Millisecond || c.Max != 99*time.Millisecond {
		t.Errorf("ordinary: %s", &c)
	}
	if d.Without.Changes != 0 || d.Beside.Changes != 1 || d.Beside.P99 != time.Second || d.Times() < 10 || d.Times() > 11 {
		t.Errorf("%s: %.1f times", d, d.Times())
	}
}

// A bridge whose liveness probe fails, and a bridge that suspends the tenant's collection, are reported.
func TestTenantRulesAreJudged(t *testing.T) {
	asked := make(chan struct{}, 100)
	status := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		asked <- struct{}{}
	}))
	defer status.Close()
	w := &world{widgets: target{Type: kube.Widgets("a.example.com")}}
	said := fmt.Sprintf(`{"msg":"status listens","address":%q}
{"msg":"collection suspended: the bus refuses its records; the others go on","collection":"widgets.a.example.com"}
{"msg":"collection suspended: the bus refuses its records; the others go on","collection":"configmaps"}`, strings.TrimPrefix(status.URL, "http://"))
	p, err := bridge.Start("sh", "-c", "echo '"+said+"' >&2; exec sleep 60")
	if err != nil {
		t.Fatal(err)
	}
	w.current, w.processes = []*bridge.Process{p}, []*bridge.Process{p}
	ctx, end := context.WithCancel(t.Context())
	tenant, done := &tenant{world: w, writes: 1}, make(chan struct{})
	tenant.stop = func() { end(); <-done }
	go func() { tenant.live(ctx); close(done) }()
	<-asked
	<-asked // the second request shows that the first answer was judged
	problems := strings.Join((&nemesis{world: w, tenant: tenant}).besideTenant(), "\n")
	p.Kill()
	if !strings.Contains(problems, "[alive] /healthz: 503") || strings.Count(problems, "[held]") != 1 || !strings.Contains(problems, `"widgets.a.example.com"`) {
		t.Errorf("problems: %s", problems)
	}
}
