package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

const (
	servedStream = 10 // number of the random stream for `bridge serve`
	// servedPoints is the largest number of resourceVersions that `bridge serve` is asked for after the faults.
	servedPoints = 1000
	// servedWatches is the number of watches from each resource's past that are compared with its present.
	servedWatches = 10
)

// CanServe reports whether `bridge serve` can read the bus of the pair: it must keep its messages.
func (p Pair) CanServe() bool { return p.Bus == "kafka" || p.Bus == "nats" && !p.lossy() }

// DrawServe lets the seed choose whether `bridge serve` runs: in one of three.
func DrawServe(seed uint64) bool { return newChance(seed, servedStream).IntN(3) == 0 }

// serving is `bridge serve` beside the bridge, and what its clients saw.
type serving struct {
	w     *world
	types []kube.Type
	stop  func() // stops the clients, and waits for them

	client http.Client

	mu        sync.Mutex
	current   *bridge.Process
	processes []*bridge.Process
	base      string          // URL of the current process; "": not known yet
	second    map[string]bool // by resource: the objects are of version v2 now
	answers   []*answer
	trails    []*trail
	bodies    map[string]string // one copy of each body
	surprises []string
}

// startServing starts `bridge serve`, and for each resource a client that follows it. Another client asks for the past.
func (w *world) startServing(ctx context.Context, l *ledger) error {
	s := &serving{w: w, second: map[string]bool{}, bodies: map[string]string{}, client: http.Client{Transport: &http.Transport{}}}
	w.serving = s
	for _, t := range w.types {
		s.types = append(s.types, t.Type)
	}
	if w.gadgets != nil {
		s.types = append(s.types, w.gadgets.typ)
	}
	if err := s.restart(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var clients sync.WaitGroup
	s.stop = func() { cancel(); clients.Wait(); s.client.CloseIdleConnections() }
	w.later(func() {
		s.stop()
		for _, p := range s.processes {
			p.Kill()
		}
	})
	for i, t := range s.types {
		one := &trail{resource: t.ResourceID(), what: "the follower"}
		s.trails = append(s.trails, one)
		clients.Go(func() { s.follow(ctx, t, one, newChance(w.spec.Seed, uint64(300+i))) })
	}
	clients.Go(func() { s.probe(ctx, l, newChance(w.spec.Seed, 299)) })
	return nil
}

// restart starts `bridge serve` again, with the configuration file as it is now. The caller holds mu, or there is no other goroutine.
func (s *serving) restart() error {
	dir := filepath.Join(s.w.dir, "serve")
	p, err := bridge.Start("env", socketEnv+"="+dir+"/unused-socket", bufferEnv+"="+dir+"/unused-buffer", auditPathEnv+"="+dir+"/unused-audit", auditListenEnv+"=127.0.0.1:0",
		s.w.spec.Binary, "serve", "-c", s.w.config, "--sink", "audit", "--data", dir, "--listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.current, s.base = p, ""
	s.processes = append(s.processes, p)
	return nil
}

// kill kills `bridge serve`. It records a problem if the process has ended without a request.
func (s *serving) kill() {
	if !s.current.Running() {
		code, _ := s.current.Wait(time.Minute)
		log := s.current.Log()
		s.surprises = append(s.surprises, fmt.Sprintf("[serve running] `bridge serve` exited without a request, with code %d; the end of its log:\n%s", code, log[max(0, len(log)-2000):]))
	}
	s.current.Kill()
}

// end stops the clients and `bridge serve`.
func (s *serving) end() {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.current.Running() {
		s.kill()
		return
	}
	s.current.Signal(syscall.SIGTERM)
	if code, err := s.current.Wait(25 * time.Second); err != nil || code != 0 {
		s.surprises = append(s.surprises, fmt.Sprintf("[serve running] `bridge serve` was asked to stop: code %d, %v", code, err))
	}
}

// servedFaults returns the faults of `bridge serve`.
func (n *nemesis) servedFaults() []fault {
	s := n.serving
	killed := func(meanwhile func(ctx context.Context, r *chance) error) func(context.Context, *chance) error {
		return func(ctx context.Context, r *chance) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.kill()
			return errors.Join(meanwhile(ctx, r), s.restart())
		}
	}
	return []fault{
		{name: "serve kill -9", do: killed(func(ctx context.Context, r *chance) error {
			if r.IntN(2) == 0 {
				r.wait(ctx, 2*time.Second)
			}
			return nil
		})},
		{name: "serve and bridge kill -9", do: func(ctx context.Context, r *chance) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if err := n.revive(); err != nil {
				return err
			}
			return killed(func(ctx context.Context, r *chance) error {
				i := r.IntN(n.replicas)
				n.current[i].Kill()
				r.wait(ctx, time.Second)
				return n.relaunch(i)
			})(ctx, r)
		}},
		{name: "serve kill -9 while the bus is away", hurts: true, do: func(ctx context.Context, r *chance) error {
			for _, p := range n.bus.proxies {
				p.Refuse()
			}
			err := killed(func(context.Context, *chance) error { return nil })(ctx, r)
			r.wait(ctx, 2*time.Second)
			for _, p := range n.bus.proxies {
				p.Pass()
			}
			return err
		}},
	}
}

// url returns the URL of a path of the current process.
func (s *serving) url(path string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == "" {
		for line := range strings.Lines(s.current.Log()) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "serving" {
				s.base = "http://" + entry.Address
			}
		}
		if s.base == "" {
			return "", errors.New("bridge serve does not listen yet")
		}
	}
	return s.base + path, nil
}

// get sends a request about a resource. at is a prefix of the path, or "". Objects are served in the version that the bridge reads, so a
// 404 can mean that this is another one now: the next request of the resource is made in that.
func (s *serving) get(ctx context.Context, at string, t kube.Type, query url.Values) (*http.Response, error) {
	s.mu.Lock()
	second := s.second[t.ResourceID()]
	s.mu.Unlock()
	gv := t.GroupVersion()
	if second {
		gv.Version = "v2"
	}
	path := at + "/apis/" + gv.String() + "/" + t.Resource
	if gv.Group == "" {
		path = at + "/api/" + gv.Version + "/" + t.Resource
	}
	address, err := s.url(path)
	if err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	a, err := s.client.Do(q)
	if err == nil && a.StatusCode == http.StatusNotFound && strings.Contains(t.Group, ".kubebridge.io") {
		s.mu.Lock()
		s.second[t.ResourceID()] = !second
		s.mu.Unlock()
	}
	return a, err
}

// point is what a list is asked for.
type point struct {
	version uint64 // 0: the present
	epoch   int    // 0: any
	inPath  bool   // in the path, not in the query
}

// page is the part of a list that is used, or of a Status.
type page struct {
	Metadata struct{ ResourceVersion, Continue string }
	Items    []json.RawMessage
	Code     int
	Reason   string
	Message  string
}

// list lists a resource at a point, in pages if limit is not 0, with up to a pause between two pages. If the connection breaks, it asks for
// the page again. Refusals are answers, too.
func (s *serving) list(ctx context.Context, t kube.Type, p point, limit int, pause func()) (*answer, error) {
	a := &answer{resource: t.ResourceID(), point: p}
	at, query := "", url.Values{}
	switch {
	case p.version == 0:
	case p.inPath && p.epoch > 0:
		at = fmt.Sprintf("/at/e%d:%d", p.epoch, p.version)
	case p.inPath:
		at = fmt.Sprintf("/at/%d", p.version)
	default:
		query.Set("resourceVersion", fmt.Sprint(p.version))
		query.Set("resourceVersionMatch", "Exact")
	}
	if limit > 0 {
		query.Set("limit", fmt.Sprint(limit))
	}
	for {
		got, err := s.page(ctx, at, t, query)
		if err != nil {
			if !rest(ctx, 50*time.Millisecond) {
				return nil, errors.Join(err, context.Cause(ctx))
			}
			continue
		}
		a.at = time.Now()
		if got.Code != 0 {
			a.code, a.reason, a.items = got.Code, got.Reason+": "+got.Message, nil
			return a, nil
		}
		a.pages++
		for _, body := range got.Items {
			a.items = append(a.items, s.item(body))
		}
		if version := number(got.Metadata.ResourceVersion); a.pages > 1 && version != a.version {
			a.reason = fmt.Sprintf("page %d is of resourceVersion %d, and page 1 of %d", a.pages, version, a.version)
		} else {
			a.version = version
		}
		if got.Metadata.Continue == "" {
			a.code = http.StatusOK
			return a, nil
		}
		pause()
		query = url.Values{"limit": {fmt.Sprint(limit)}, "continue": {got.Metadata.Continue}}
	}
}

func (s *serving) page(ctx context.Context, at string, t kube.Type, query url.Values) (p page, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	res, err := s.get(ctx, at, t, query)
	if err != nil {
		return p, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err == nil && (res.StatusCode == http.StatusOK) != (p.Code == 0) {
		err = fmt.Errorf("%s: %.200s", res.Status, text)
	}
	return p, err
}

// item reads an object.
func (s *serving) item(body []byte) item {
	var o struct {
		Metadata struct{ UID, Name, Namespace, ResourceVersion string }
	}
	_ = json.Unmarshal(body, &o) // an object without them is found by the verdict
	s.mu.Lock()
	defer s.mu.Unlock()
	text, known := s.bodies[string(body)]
	if !known {
		text = string(body)
		s.bodies[text] = text
	}
	return item{uid: o.Metadata.UID, name: o.Metadata.Namespace + "/" + o.Metadata.Name, rv: number(o.Metadata.ResourceVersion), body: text}
}

// errEnded is returned for a watch that `bridge serve` has ended: the error that it sent, or its refusal.
type errEnded struct {
	code   int
	reason string
}

func (e *errEnded) Error() string { return fmt.Sprintf("%d %s", e.code, e.reason) }

// watch watches from a version for some seconds.
func (s *serving) watch(ctx context.Context, t kube.Type, from uint64, seconds int, saw func(sight)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds+20)*time.Second)
	defer cancel()
	res, err := s.get(ctx, "", t, url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {fmt.Sprint(from)}, "timeoutSeconds": {fmt.Sprint(seconds)},
	})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := json.NewDecoder(res.Body)
	if res.StatusCode != http.StatusOK {
		var p page
		if err := lines.Decode(&p); err != nil {
			return err
		}
		return &errEnded{res.StatusCode, p.Message}
	}
	for {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if e.Type == "ERROR" {
			var p page
			if err := json.Unmarshal(e.Object, &p); err != nil {
				return err
			}
			return &errEnded{p.Code, p.Message}
		}
		o := s.item(e.Object)
		saw(sight{kind: e.Type, version: o.rv, item: o})
	}
}

// follow lists a resource and watches it. After a broken connection it resumes from the last version that it has seen. It lists again only
// after a 410, or if etcd was restored and its version is too new.
func (s *serving) follow(ctx context.Context, t kube.Type, to *trail, r *chance) {
	saw := func(x sight) {
		s.mu.Lock()
		defer s.mu.Unlock()
		to.sights = append(to.sights, x)
		to.position = x.version
	}
	for listed := false; ctx.Err() == nil; {
		if !listed {
			a, err := s.list(ctx, t, point{}, 0, func() {})
			switch {
			case err != nil:
				return // ctx has ended
			case a.code == http.StatusOK:
				saw(sight{kind: sawList, version: a.version, items: a.items})
				listed = true
			}
		} else {
			err := s.watch(ctx, t, to.position, 1+r.IntN(4), saw)
			var ended *errEnded
			if errors.As(err, &ended) && ended.code != http.StatusNotFound && ended.code != http.StatusServiceUnavailable {
				saw(sight{kind: sawRefusal, version: to.position, code: ended.code, reason: ended.reason})
				listed = ended.code != http.StatusGone && ended.code != http.StatusGatewayTimeout // too new, after a restore of etcd
			}
			if err == nil {
				continue
			}
		}
		rest(ctx, 100*time.Millisecond)
	}
}

// probe asks for versions of the past and for the present, while the bus advances and between kills.
func (s *serving) probe(ctx context.Context, l *ledger, r *chance) {
	for ctx.Err() == nil {
		t := s.w.types[r.IntN(len(s.w.types))]
		p := point{inPath: r.IntN(2) == 0}
		if versions := l.versionsOf(t.ResourceID()); len(versions) > 0 && r.IntN(4) > 0 {
			p.version = versions[r.IntN(len(versions))]
		}
		if s.w.spec.Harm {
			p.inPath, p.epoch = true, 1
		}
		limited, cancel := context.WithTimeout(ctx, 20*time.Second)
		a, err := s.list(limited, t.Type, p, 1+r.IntN(20), func() { r.wait(ctx, 300*time.Millisecond) })
		cancel()
		if err == nil {
			a.early = true
			s.answered(a)
		}
		r.wait(ctx, 200*time.Millisecond)
	}
}

func (s *serving) answered(a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, a)
}

// versionsOf returns the acknowledged versions of a resource in the present history, sorted.
func (l *ledger) versionsOf(resource string) (all []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.objects {
		if o.typ.ResourceID() != resource {
			continue
		}
		for _, v := range o.versions {
			all = append(all, v.rv)
		}
	}
	slices.Sort(all)
	return all
}

// settleServed waits until the present lists are those of the API server, and asks for the past. Nobody writes meanwhile. The verdict judges
// what was answered; the returned error says what did not come in time.
func (n *nemesis) settleServed(ctx context.Context, v *servedVerdict) error {
	s := n.serving
	messages, err := n.bus.read(ctx)
	if err != nil {
		return err
	}
	r := newChance(n.spec.Seed, 298)
	for _, t := range s.types {
		now, err := s.present(ctx, v, t, provedBy(messages, t.ResourceID()))
		if err != nil {
			return err
		}
		points := s.points(v, t.ResourceID(), messages, now.version, r)
		var covered []*answer
		for _, p := range points {
			a, err := s.list(ctx, t, p, 5+r.IntN(100), func() {})
			if err != nil {
				return fmt.Errorf("list %s at %d: %w", t.ResourceID(), p.version, err)
			}
			s.answered(a)
			if a.code == http.StatusOK && (!v.restored || p.epoch > 1) { // a version of the former history is another state in this one
				covered = append(covered, a)
			}
		}
		r.Shuffle(len(covered), func(i, j int) { covered[i], covered[j] = covered[j], covered[i] })
		for _, a := range covered[:min(len(covered), servedWatches)] {
			one := &trail{resource: a.resource, what: fmt.Sprintf("the watch from %d", a.version), sights: []sight{{kind: sawList, version: a.version, items: a.items}}}
			err := s.watch(ctx, t, a.version, 1, func(x sight) { one.sights = append(one.sights, x) })
			var ended *errEnded
			if errors.As(err, &ended) {
				one.sights = append(one.sights, sight{kind: sawRefusal, version: a.version, code: ended.code, reason: ended.reason})
			} else if err != nil {
				return fmt.Errorf("watch %s from %d: %w", a.resource, a.version, err)
			}
			one.goal = now.version
			s.trails = append(s.trails, one)
		}
		if err := s.followed(ctx, t.ResourceID(), now.version); err != nil {
			return err
		}
	}
	return nil
}

// present waits until the present list has what exists. A resource of several collections may be behind, but not behind the version that is
// proved.
func (s *serving) present(ctx context.Context, v *servedVerdict, t kube.Type, proved uint64) (*answer, error) {
	limit := time.Minute
	if v.loose[t.ResourceID()] { // a quiet collection waits for a bookmark, which takes about a minute
		limit *= 2
	}
	patience, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	var last *answer
	for {
		a, err := s.list(patience, t, point{}, 0, func() {})
		if err != nil && last == nil {
			return nil, fmt.Errorf("list %s: %w", t.ResourceID(), err)
		} else if err != nil {
			a = last
		}
		last = a
		wrong := a.reason
		if a.code == http.StatusOK {
			wrong = v.differs(a.resource, a.items)
		}
		if wrong == "" {
			s.answered(a)
			return a, nil
		}
		if !rest(patience, 100*time.Millisecond) {
			// A quiet collection is proved only up to the API server's last bookmark. The list is judged as of its version.
			if v.loose[a.resource] && a.code == http.StatusOK && a.version >= proved {
				s.answered(a)
				return a, nil
			}
			return nil, fmt.Errorf("%w: the present list of %s, of resourceVersion %d, is not that of the API server: %s", context.Cause(patience), t.ResourceID(), a.version, wrong)
		}
	}
}

// followed waits until the follower has reached a version.
func (s *serving) followed(ctx context.Context, resource string, version uint64) error {
	patience, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not within 1 minute"))
	defer cancel()
	for {
		s.mu.Lock()
		i := slices.IndexFunc(s.trails, func(one *trail) bool { return one.resource == resource })
		at := s.trails[i].position
		s.trails[i].goal = version
		s.mu.Unlock()
		if at >= version {
			return nil
		}
		if !rest(patience, 50*time.Millisecond) {
			return fmt.Errorf("%w: the follower of %s is at resourceVersion %d, want %d", context.Cause(patience), resource, at, version)
		}
	}
}

// points returns what is asked for after the faults: what was answered before, each synced, and versions of objects.
func (s *serving) points(v *servedVerdict, resource string, messages []bus.Message, now uint64, r *chance) (all []point) {
	epochOf := func(version uint64, epoch int) point {
		p := point{version: version, inPath: r.IntN(2) == 0}
		if s.w.spec.Harm {
			p.inPath, p.epoch = true, epoch
		}
		return p
	}
	known := map[point]bool{}
	add := func(p point) {
		key := point{version: p.version, epoch: p.epoch}
		if p.version != 0 && !known[key] && (p.version <= now || p.epoch == 1) {
			known[key] = true
			all = append(all, p)
		}
	}
	s.mu.Lock()
	for _, a := range s.answers {
		if a.resource == resource && a.code == http.StatusOK && a.point.version != 0 {
			add(epochOf(a.version, a.point.epoch))
		}
	}
	s.mu.Unlock()
	for i := range messages {
		if m := &messages[i]; m.Resource() == resource && m.Is("synced") {
			add(epochOf(number(m.RV()), m.Epoch()))
		}
	}
	first := len(all)
	for _, h := range v.truth[resource] {
		for _, o := range h.objects {
			for _, one := range o.versions {
				if h.epoch > 1 || one.rv >= v.listedFirst(resource) {
					add(epochOf(one.rv, h.epoch))
				}
			}
		}
	}
	slices.SortFunc(all[first:], func(a, b point) int { return int(a.version) - int(b.version) })
	r.Shuffle(len(all)-first, func(i, j int) { all[first+i], all[first+j] = all[first+j], all[first+i] })
	return all[:min(len(all), servedPoints/len(s.types))]
}

// judgeServed ends and judges `bridge serve`. It does nothing without it.
func (n *nemesis) judgeServed(ctx context.Context, l *ledger, settled bool) (*servedCounts, []string) {
	s := n.serving
	if s == nil {
		return nil, nil
	}
	v, err := n.servedVerdict(ctx, l)
	if err == nil && settled {
		err = n.settleServed(ctx, v)
	}
	s.end()
	var problems []string
	if err != nil {
		problems = append(problems, fmt.Sprintf("[serve present] %v", err))
	}
	for i, p := range s.processes {
		if strings.Contains(p.Log(), "DATA RACE") {
			problems = append(problems, fmt.Sprintf("[race] bridge serve, process %d: see its log", i))
		}
	}
	if messages, err := n.bus.read(ctx); err == nil { // a gap may have begun, and bodies were published again, while answers were collected
		v.read(n.pair, messages)
	}
	v.answers, v.trails, v.counts.Kills = s.answers, s.trails, len(s.processes)-1
	problems = append(append(problems, s.surprises...), v.judge()...)
	return &v.counts, problems
}

// servedVerdict returns a verdict with everything except the answers.
func (n *nemesis) servedVerdict(ctx context.Context, l *ledger) (*servedVerdict, error) {
	messages, err := n.bus.read(ctx)
	types := slices.Clone(n.types)
	if n.gadgets != nil {
		types = append(types, target{Type: n.gadgets.typ})
	}
	v := newServedVerdict(n.pair, l, types, messages)
	v.dropped = droppedBy(n.happened)
	if err != nil {
		return v, err
	}
	for _, t := range n.types {
		objects, err := n.selected(ctx, t)
		if err != nil {
			return v, err
		}
		exists := map[string]item{}
		for uid, body := range objects {
			exists[uid] = item{uid: uid, body: t.published(body)}
		}
		v.cluster[t.ResourceID()] = exists
	}
	if g := n.gadgets; g != nil {
		resource, exists := g.typ.ResourceID(), map[string]item{}
		for uid, o := range g.truth.objects {
			if last := o.states[len(o.states)-1]; !o.deleted && g.edition().selects(last) {
				exists[uid] = item{uid: uid, name: last.namespace + "/" + last.name, rv: last.rv}
			}
		}
		v.cluster[resource], v.loose[resource] = exists, true
		v.truth[resource] = nil
		if g.publishesAll() {
			v.truth[resource] = g.pastsOf()
		}
	}
	return v, nil
}
