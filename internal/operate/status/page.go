package status

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed page.html changes.html page.css page.js icon.svg
var assets embed.FS

// Unknown stands for a value that is not known.
const Unknown = "–"

// clock is the format of times on the pages.
const clock = "2006-01-02 15:04:05 UTC"

// maxTroubles is the number of troubles that are shown above the table.
const maxTroubles = 5

// query has the filters and the order of a page.
type query struct {
	Text  string // text that the collection's ID, kind, state or sink must contain
	State string
	Sink  string
	Sort  string // a key of sorts; any other value means "trouble first"
}

func newQuery(v url.Values) query {
	return query{Text: v.Get("q"), State: v.Get("state"), Sink: v.Get("sink"), Sort: v.Get("sort")}
}

// link returns the query with another order.
func (q query) link(key string) string {
	v := url.Values{"sort": {key}}
	for name, value := range map[string]string{"q": q.Text, "state": q.State, "sink": q.Sink} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return "?" + v.Encode()
}

// fact is a name and its value.
type fact struct{ Name, Value string }

// page has the values that page.html shows.
type page struct {
	Report
	Query        query
	Word, Class  string
	At           string
	Leads, Facts []fact
	Troubles     []troubleView
	MoreTroubles int
	Sinks        []sinkView
	States       string
	StateNames   []string
	SinkNames    []string
	Sorts        []sorting
	Columns      []column
	Rows         []row
	All          int
	None         string // why there is no collection
}

type troubleView struct{ Where, Word, Error, Advice, Retry string }

// past is an error that does not persist.
type past struct{ Ago, Error, Advice string }

type sinkView struct {
	Name, Word, Where string
	Charts            []chart
	Stats             []fact
	Last              *past
}

type column struct{ Title, Class, Link, Sorted string }

type row struct {
	Class, State, Since, ID, GVK, Error, Sink, Position, Lag, Rate, Objects, Gap, GapWhen, Find string

	Changes string // link to the last changes; "": they are not kept
	Last    *past
	c       *Collection
}

// sorting is an order of the rows. Rows that are equal in it are sorted by trouble, ID and sink.
type sorting struct {
	Key, Title, column, sorted string

	less func(a, b *Collection) int
}

func sorts() []sorting {
	return []sorting{
		{"", "trouble first", "State", "other", func(*Collection, *Collection) int { return 0 }},
		{"name", "name", "Collection", "ascending", func(a, b *Collection) int { return cmp.Compare(a.ID, b.ID) }},
		{"lag", "lag", "Lag", "descending", func(a, b *Collection) int { return descending(a.Lag, b.Lag) }},
		{"rate", "events/s", "Events/s", "descending", func(a, b *Collection) int { return descending(a.Rate, b.Rate) }},
		{"objects", "objects", "Objects", "descending", func(a, b *Collection) int { return descending(a.Objects, b.Objects) }},
	}
}

// descending sorts the largest value first and unknown values last.
func descending[T cmp.Ordered](a, b *T) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	default:
		return cmp.Compare(*b, *a)
	}
}

// ClassOf returns the CSS class of a state.
func (p page) ClassOf(word string) string { return classOf(word) }

func classOf(word string) string {
	switch word {
	case "watching", "up", "ready":
		return "ok"
	case "failing", "not ready":
		return "bad"
	case "gone", "standby":
		return "off"
	default:
		return "busy"
	}
}

func newPage(r Report, q query, h *history) page {
	p := page{Report: r, Query: q, Word: r.Word(), At: r.At.UTC().Format(clock), Sorts: sorts()}
	if e := r.Election; e != nil && e.Problem != "" {
		p.Troubles = append(p.Troubles, troubleView{
			Where: "Lease " + e.Lease, Word: "not reached", Error: e.Problem, Advice: "let the bridge's account get, create, update and watch the Lease; it is tried again",
		})
	}
	p.Class, p.None = classOf(p.Word), cmp.Or(r.Elsewhere(), "No collection yet.")
	if r.Waiting != "" {
		p.Troubles = append(p.Troubles, troubleView{
			Where: "Kubernetes", Word: "not reached", Error: r.Waiting, Advice: "check that the API server answers the bridge; it is asked again every few seconds",
		})
	}
	if b := r.Buffer; b != nil && b.Error != "" {
		p.Troubles = append(p.Troubles, troubleView{
			Where: "Disk buffer", Word: "not used", Error: b.Error, Advice: "repair the disk, or delete the directory, and restart the bridge",
		})
	}
	if b := r.Buffer; b != nil && b.Ended > 0 {
		p.Troubles = append(p.Troubles, troubleView{
			Where: "Disk buffer", Word: "ended", Error: comma(int64(b.Ended)) + " of " + comma(int64(b.Targets)) + " recordings go on no longer: what they hold is published, and a gap may follow",
			Advice: "the log says why: restore the bus, and give the buffer more room if it was full",
		})
	}
	if b := r.Buffer; b != nil && b.Problem != "" {
		p.Troubles = append(p.Troubles, troubleView{
			Where: "Disk buffers of standbys", Word: "not in step", Error: b.Problem,
			Advice: "let the bridge's account create, get and update the ConfigMap beside the Lease, and give all replicas the same hash key; it is tried again",
		})
	}
	if a := r.Audit; a != nil && a.Failing != "" {
		p.Troubles = append(p.Troubles, viewAudit(a, r.At))
	}
	states := map[State]int{}
	total := totals{}
	for i := range r.Sinks {
		s := &r.Sinks[i]
		p.SinkNames = append(p.SinkNames, s.Name)
		p.Sinks = append(p.Sinks, viewSink(s, h.pointsOf(s.Name), r.At))
		total.add(s)
		if !s.Ready {
			p.Troubles = append(p.Troubles, viewFailing(s, r.At))
		}
	}
	if len(r.Sinks) > 1 {
		all := sinkView{Name: "All sinks", Charts: charts(h.total(), total.rate, total.lag)}
		all.Stats = []fact{{"Delivered", comma(int64(total.delivered))}}
		p.Sinks = append([]sinkView{all}, p.Sinks...)
	}
	var rows []row
	for _, e := range r.Entries() {
		states[e.Collection.State]++
		rows = append(rows, viewRow(e.Sink, e.Collection, r.At))
	}
	p.troubles(rows, r.At)
	var words []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		p.StateNames = append(p.StateNames, string(state))
		words = append(words, strconv.Itoa(states[state])+" "+string(state))
	}
	p.All, p.States = len(rows), strings.Join(words, ", ")
	p.Leads = []fact{{"Events/s", Number(total.rate)}, {"Lag", Seconds(total.lag)}, {"Collections", comma(int64(len(rows)))}, {"Up", span(r.At.Sub(r.Started))}}
	p.Facts = facts(&r)
	p.choose(rows)
	return p
}

// totals are values of all sinks together.
type totals struct {
	delivered uint64
	rate, lag *float64
}

func (t *totals) add(s *Sink) {
	t.delivered += s.Delivered
	if s.Rate != nil {
		sum := *s.Rate
		if t.rate != nil {
			sum += *t.rate
		}
		t.rate = &sum
	}
	if s.Lag != nil && (t.lag == nil || *s.Lag > *t.lag) {
		t.lag = s.Lag
	}
}

// troubles adds the first rows that are in trouble. rows are sorted by trouble.
func (p *page) troubles(rows []row, now time.Time) {
	for _, r := range rows {
		if !r.c.Troubled() {
			return
		}
		if len(p.Troubles) >= maxTroubles {
			p.MoreTroubles++
			continue
		}
		t := troubleView{Where: r.ID + " → " + r.Sink, Word: r.State, Error: cmp.Or(r.c.Error, Unknown), Advice: "nothing yet: it is tried again"}
		if r.c.LastError != nil {
			t.Advice = r.c.LastError.Advice
		}
		if at := r.c.RetryAt; at != nil {
			t.Retry = "Tried again " + until(*at, now) + "."
		}
		p.Troubles = append(p.Troubles, t)
	}
}

// choose selects and sorts the rows as the query says.
func (p *page) choose(rows []row) {
	by := p.Sorts[0]
	for _, s := range p.Sorts {
		if s.Key == p.Query.Sort {
			by = s
		}
	}
	text := strings.ToLower(strings.TrimSpace(p.Query.Text))
	for _, r := range rows {
		if strings.Contains(r.Find, text) && (p.Query.State == "" || p.Query.State == r.State) && (p.Query.Sink == "" || p.Query.Sink == r.Sink) {
			p.Rows = append(p.Rows, r)
		}
	}
	slices.SortStableFunc(p.Rows, func(a, b row) int { return by.less(a.c, b.c) })
	for _, title := range []string{"State", "Collection", "Sink", "Position", "Lag", "Events/s", "Objects", "Last gap"} {
		c := column{Title: title}
		for _, s := range p.Sorts {
			if s.column == title {
				c.Link = p.Query.link(s.Key)
				if s.Key == by.Key {
					c.Sorted = s.sorted
				}
			}
		}
		if title == "Lag" || title == "Events/s" || title == "Objects" {
			c.Class = "right"
		}
		p.Columns = append(p.Columns, c)
	}
}

func facts(r *Report) []fact {
	uid, digest := cmp.Or(r.ClusterUID, Unknown), Unknown
	if len(r.ConfigDigest) >= 12 {
		digest = "sha256 " + r.ConfigDigest[:12]
	}
	list := []fact{
		{"Version", r.Version}, {"Configuration", digest}, {"Cluster UID", uid},
	}
	if e := r.Election; e != nil {
		who := cmp.Or(e.Holder, "nobody")
		if e.Role != Standby {
			who += " (this one)"
		}
		list = append(list, fact{"Leader", who})
	}
	if r.Watches > 0 {
		list = append(list, fact{"Open watches", comma(int64(r.Watches))})
	}
	if r.Buffer != nil {
		list = append(list, fact{"Disk buffer", r.Buffer.Words()})
	}
	if r.Audit != nil {
		list = append(list, fact{"Audit records", r.Audit.Words(r.At)})
	}
	return list
}

func charts(points []point, rate, lag *float64) []chart {
	return []chart{
		newChart("Events/s", rate, points, func(p point) *float64 { return p.rate }, Number),
		newChart("Lag", lag, points, func(p point) *float64 { return p.lag }, Seconds),
	}
}

func viewSink(s *Sink, points []point, now time.Time) sinkView {
	v := sinkView{Name: s.Name, Word: s.Word(), Charts: charts(points, s.Rate, s.Lag), Last: viewPast(s.LastError, s.Ready, now)}
	var where []string
	for _, part := range []string{s.Bus, s.Delivery, s.Address} {
		if part != "" {
			where = append(where, part)
		}
	}
	v.Where = strings.Join(where, " · ")
	v.Stats = []fact{
		{"Delivered", comma(int64(s.Delivered))},
		{"Waiting", comma(s.Queue.Events) + " of " + comma(s.Queue.EventCapacity)},
		{"In the queue", size(s.Queue.Bytes)},
		{"Last event", agoIf(s.LastEvent, now)},
		{"Checkpoint", agoIf(s.LastCommit, now)},
	}
	if s.Attribution != nil {
		v.Stats = append(v.Stats, fact{"Attribution", s.Attribution.Words()})
	}
	return v
}

func viewAudit(a *Audit, now time.Time) troubleView {
	t := troubleView{Where: "Audit records", Word: "failing", Error: a.Failing, Advice: "the log says more"}
	if a.LastError != nil {
		t.Advice = a.LastError.Advice
	}
	if a.Since != nil {
		t.Retry = "Tried again and again for " + span(now.Sub(*a.Since)) + "."
	}
	return t
}

func viewFailing(s *Sink, now time.Time) troubleView {
	t := troubleView{Where: "Sink " + s.Name, Word: s.Word(), Error: cmp.Or(s.Failing, Unknown), Advice: "nothing yet: it is being opened"}
	if s.LastError != nil {
		t.Advice = s.LastError.Advice
	}
	if s.Since != nil {
		t.Retry = "Tried again and again for " + span(now.Sub(*s.Since)) + "."
	}
	return t
}

// pastFor is how long the page shows an error that is over.
const pastFor = 5 * time.Minute

func viewPast(t *Trouble, over bool, now time.Time) *past {
	if t == nil || !over || now.Sub(t.At) > pastFor {
		return nil
	}
	return &past{Ago: ago(t.At, now), Error: t.Error, Advice: t.Advice}
}

func viewRow(s *Sink, c *Collection, now time.Time) row {
	r := row{
		Class: classOf(string(c.State)), State: string(c.State), Since: "for " + span(now.Sub(c.Since)), ID: c.ID, Sink: s.Name,
		GVK: Unknown, Error: c.Error, Position: cmp.Or(c.Position, Unknown), Lag: Seconds(c.Lag), Rate: Number(c.Rate),
		Objects: Unknown, Gap: Unknown, Last: viewPast(c.LastError, c.Error == "", now), c: c,
	}
	if c.Troubled() {
		r.Class = "bad"
	}
	if c.State == Buffered {
		r.Since = "reads what was buffered on disk, " + r.Since
	}
	if c.EditWaits != nil {
		r.Since += "; a changed configuration waits for this since " + ago(*c.EditWaits, now)
	}
	if c.Kind != "" {
		r.GVK = c.APIVersion + " " + c.Kind
	}
	if c.Objects != nil {
		r.Objects = comma(*c.Objects)
	}
	if l := c.List; l != nil {
		r.Objects = comma(l.Read) + " read"
		if l.Remaining != nil {
			r.Objects += ", " + comma(*l.Remaining) + " to come"
		}
	}
	if g := c.Gap; g != nil {
		r.Gap, r.GapWhen = g.Reason, "open for "+span(now.Sub(g.Opened))
		if !c.InGap() {
			r.GapWhen = "closed " + ago(*g.Closed, now)
		}
	}
	r.Find = strings.ToLower(strings.Join([]string{c.ID, c.APIVersion, c.Kind, s.Name, string(c.State)}, " "))
	return r
}

// Number formats a number for people; [Unknown] for nil.
func Number(v *float64) string {
	switch {
	case v == nil:
		return Unknown
	case *v == 0:
		return "0"
	case *v < 0.1:
		return "<0.1"
	case *v < 100:
		return strconv.FormatFloat(*v, 'f', 1, 64)
	default:
		return comma(int64(math.Round(*v)))
	}
}

// Seconds formats a duration of v seconds for people; [Unknown] for nil.
func Seconds(v *float64) string {
	switch {
	case v == nil:
		return Unknown
	case *v < 0.001:
		return "<1 ms"
	case *v < 1:
		return fmt.Sprintf("%.0f ms", *v*1000)
	case *v < 60:
		return fmt.Sprintf("%.1f s", *v)
	default:
		return span(time.Duration(*v * float64(time.Second)))
	}
}

func comma(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func size(bytes int64) string {
	switch {
	case bytes < 1<<10:
		return comma(bytes) + " B"
	case bytes < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	case bytes < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	default:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
}

// span formats a duration in its largest unit or its two largest ones.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

func ago(t, now time.Time) string { return span(now.Sub(t)) + " ago" }

func agoIf(t *time.Time, now time.Time) string {
	if t == nil {
		return Unknown
	}
	return ago(*t, now)
}

func until(t, now time.Time) string {
	if !t.After(now) {
		return "now"
	}
	return "in " + span(t.Sub(now))
}

func parsePage() (*template.Template, error) {
	return template.ParseFS(assets, "page.html")
}
