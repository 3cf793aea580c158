package e2e

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/e2e/internal/attribution"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// judged is a change on the bus, with the calls of which one has made it.
type judged struct {
	*bus.Message
	calls   []*call // none: the test does not know
	certain bool    // the client that made it knows that it did
}

// judge checks what is on the bus.
func (a *auditRun) judge() {
	a.t.Helper()
	all, err := a.log.Messages()
	a.must(err)
	v := a.verdict(all)
	v.report()
}

// verdict compares the messages on the bus with what the clients know.
func (a *auditRun) verdict(all []bus.Message) *auditVerdict {
	a.t.Helper()
	v := &auditVerdict{auditRun: a, changes: map[string]*judged{}, counts: map[string]int{}, missing: map[string]int{}}
	a.truth.lock(func() { v.readChanges(all) })
	answers, problems := attribution.Read(all, attribution.Options{Exact: true})
	v.problems = append(v.problems, problems...)
	for i := range all {
		for _, one := range answers[all[i].ID()] {
			if c := v.changes[all[i].ID()]; c != nil {
				v.one(c, &one)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(v.changes)) {
		if c := v.changes[id]; answers[id] == nil && c.calls != nil {
			v.silent(c)
		}
	}
	return v
}

// auditVerdict is the verdict over a run.
type auditVerdict struct {
	*auditRun
	changes  map[string]*judged // by id
	counts   map[string]int
	missing  map[string]int // by what was done: changes that are not attributed exactly and should be
	latency  []time.Duration
	problems []string
}

func (v *auditVerdict) problem(format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

// readChanges finds the calls of the changes. The truth is locked.
func (v *auditVerdict) readChanges(all []bus.Message) {
	last := map[string]*bus.Message{} // by uid
	for i := range all {
		m := &all[i]
		if m.OfCollection() || !m.Is("added", "modified", "deleted") || m.Attributes["origin"] == "snapshot" {
			if m.Is("present") {
				last[m.UID()] = m
			}
			continue
		}
		if v.changes[m.ID()] != nil {
			v.problem("[once] %s is on the bus twice", m.ID())
		}
		c := &judged{Message: m}
		v.explain(c, last[m.UID()])
		v.changes[m.ID()] = c
		last[m.UID()] = m
	}
}

// explain finds the calls of a change. before is the event of the object before it; nil: there is none.
func (v *auditVerdict) explain(c *judged, before *bus.Message) {
	made := v.truth.made[c.UID()+"/"+c.RV()]
	name := c.Resource() + "/" + c.Name()[strings.LastIndexByte(c.Name(), '/')+1:]
	name = strings.Replace(name, "."+v.widgets.Group, "", 1)
	name = strings.Replace(name, "deployments.apps", "deployments", 1)
	body := c.Body()
	if c.Is("deleted") {
		if ended := v.truth.ended[c.UID()]; ended != nil {
			c.calls, c.certain = []*call{ended}, true
			return
		}
		kinds := []callKind{kindDelete, kindEvict}
		if metaOf(body)["finalizers"] != nil {
			kinds = []callKind{kindFinalize}
		}
		c.calls = append(v.candidates(c, name, false, kinds...), v.truth.ending[c.UID()]...)
		return
	}
	if made != nil {
		c.calls, c.certain = []*call{made}, true
	}
	written := v.stamped(c, before)
	switch {
	case made != nil:
		if written != nil && written != made && !made.private {
			v.problem("[test] %s: the client says call %d, the object says call %d", c, made.n, written.n)
		}
	case written != nil:
		c.calls, c.certain = []*call{written}, true
	case c.Attributes["origin"] == "watch" && before != nil:
		marks := metaOf(before.Body())["deletionTimestamp"] == nil // otherwise the grace period becomes shorter
		if metaOf(body)["deletionTimestamp"] != nil || c.Resource() == kube.Pods.Resource {
			c.calls = v.candidates(c, name, marks, kindDelete, kindEvict)
		}
		// A patch of the same can change managedFields, if a PUT has brought older ones back.
		c.calls = append(c.calls, v.truth.answered[c.UID()+"/"+c.RV()]...)
	}
}

// stamped returns the call whose number was written with a change; nil: it is not known.
func (v *auditVerdict) stamped(c *judged, before *bus.Message) *call {
	if c.Attributes["origin"] != "watch" || c.Is("modified") && before == nil {
		return nil // there may be changes in between
	}
	now, then := stampsOf(c.Body()), [4]string{}
	if before != nil && c.Is("modified") {
		then = stampsOf(before.Body())
	}
	for i := range now {
		if n, err := strconv.Atoi(strings.TrimPrefix(now[i], "s")); err == nil && now[i] != then[i] && n >= 1 && n <= len(v.truth.calls) {
			return v.truth.calls[n-1]
		}
	}
	return nil
}

// candidates returns the calls that can have removed an object, or have marked it as being removed. The first one that has succeeded has marked
// it, so those that began later have not.
func (v *auditVerdict) candidates(c *judged, name string, marks bool, kinds ...callKind) (list []*call) {
	var first time.Time
	text, _ := metaOf(c.Body())["creationTimestamp"].(string)
	created, _ := time.Parse(time.RFC3339, text) // in whole seconds, rounded down, by the clock of this machine
	for _, one := range v.truth.removers[name] {
		if one.code != 0 && one.ended.Before(created) || !c.At.IsZero() && one.begun.After(c.At) {
			continue
		}
		if !slices.Contains(kinds, one.kind) || !one.mayHaveDone() || one.uid != "" && one.uid != c.UID() {
			continue
		}
		list = append(list, one)
		if marks && one.kind == kindDelete && one.code != 0 && one.code < 300 && one.uid == c.UID() && (first.IsZero() || one.ended.Before(first)) {
			first = one.ended
		}
	}
	if !first.IsZero() {
		list = slices.DeleteFunc(list, func(one *call) bool { return one.kind == kindDelete && one.begun.After(first) })
	}
	return list
}

// one judges an attributed event.
func (v *auditVerdict) one(c *judged, m *attribution.Answer) {
	what := "candidates: " + m.Data.Reason
	if m.Request != nil {
		what = "exact"
	}
	if c.calls == nil {
		v.counts["of the admin: "+what]++
		if m.Request == nil {
			return
		}
		if named := v.callOf(m.Request); named != nil {
			v.problem("[test] %s names %s; the test does not know who made the change", c, describe([]*call{named}))
		}
		return
	}
	v.counts[v.level(c)+" "+what]++
	if v.exactByRecord(c) {
		v.counts["provable by one record: "+what]++
	}
	if m.Request == nil {
		v.inexact(c, m)
		return
	}
	r := m.Request
	named := v.callOf(r)
	if named == nil {
		v.problem("[wrong] %s names %s, who is none of the clients; want one of %s", m, r.Sender(), describe(c.calls))
		return
	}
	if !slices.Contains(c.calls, named) {
		v.problem("[wrong] %s (%s) names %s; want %s", c, m.Place, describe([]*call{named}), describe(c.calls))
		return
	}
	if !named.is(r) {
		v.problem("[wrong] %s names %q for %s", c, r.Sender(), describe([]*call{named}))
	}
	if len(c.calls) > 1 {
		v.counts["named, of several that are possible for the test"]++
	}
	if v.exactByRecord(c) && named.ended.Before(v.first.Add(-2*time.Second)) && !m.At.IsZero() {
		v.latency = append(v.latency, m.At.Sub(named.ended))
	}
}

// is reports whether a request is by the user of a call.
func (c *call) is(r *event.Request) bool {
	if c.who.impersonated {
		return r.User.Name == "admin" && r.Impersonated != nil && r.Impersonated.Name == c.who.name
	}
	return r.Impersonated == nil && r.User.Name == c.who.name
}

// callOf returns the call that a request is, by its user agent; nil: it is none.
func (v *auditVerdict) callOf(r *event.Request) *call {
	n, err := strconv.Atoi(strings.TrimPrefix(r.UserAgent, "call/"))
	if err != nil {
		return nil
	}
	return v.truth.number(n)
}

// level returns the level of the records of a change.
func (v *auditVerdict) level(c *judged) string {
	if c.Resource() == kube.Secrets.Resource {
		return "Metadata,"
	}
	return "RequestResponse,"
}

// exactByRecord reports whether the record of a change is a proof, whatever else is missing.
func (v *auditVerdict) exactByRecord(c *judged) bool {
	if !c.certain || c.Is("deleted") || v.level(c) == "Metadata," {
		return false
	}
	one := c.calls[0]
	return one.provable && (one.code == 201 || one.code == 200 && one.conditions)
}

// inexact judges candidates.
func (v *auditVerdict) inexact(c *judged, m *attribution.Answer) {
	if v.exactByRecord(c) && v.form.dropped == 0 {
		v.missing[c.calls[0].what]++
		v.problem("[exact] %s (%s) is not attributed exactly, but: %s; want %s", c, m.Place, m.Data.Reason, describe(c.calls))
	}
	for i := range m.Candidates {
		if named := v.callOf(&m.Candidates[i]); named != nil && slices.Contains(c.calls, named) {
			v.counts["candidates with the request that did it"]++
			return
		}
	}
	const what = "candidates without the request that did it"
	if v.counts[what]++; v.form.dropped == 0 && v.counts[what] <= 3 {
		v.logf("%s (%s, %s): %d candidates; done by %s", c, m.Place, m.Data.Reason, len(m.Candidates), describe(c.calls))
	}
}

// silent judges a change about which nothing is said.
func (v *auditVerdict) silent(c *judged) {
	v.counts[v.level(c)+" no record"]++
	if v.form.dropped == 0 {
		v.problem("[silent] nothing is said about %s; want %s", c, describe(c.calls))
	}
}

func describe(calls []*call) string {
	var out []string
	for _, c := range calls[:min(len(calls), 5)] {
		out = append(out, fmt.Sprintf("call %d (%s of %s by %s: %d, %s to %s)", c.n, c.what, c.name, c.who.name, c.code, c.begun.Format("05.000"), c.ended.Format("05.000")))
	}
	if len(calls) > len(out) {
		out = append(out, fmt.Sprintf("and %d others", len(calls)-len(out)))
	}
	return strings.Join(out, ", ")
}

func (v *auditVerdict) report() {
	v.t.Helper()
	certain, several := 0, 0
	for _, c := range v.changes {
		switch {
		case len(c.calls) > 1:
			several++
		case len(c.calls) == 1:
			certain++
		}
	}
	v.logf("%d changes on the bus: of %d the test knows the request, of %d that it is one of several, of %d nothing; %d calls of the clients, %d of them changed nothing although they were answered with 2xx",
		len(v.changes), certain, several, len(v.changes)-certain-several, len(v.truth.calls), v.truth.unmoved)
	for _, what := range slices.Sorted(maps.Keys(v.counts)) {
		v.logf("%7d %s", v.counts[what], what)
	}
	if n := len(v.latency); n > 0 {
		slices.Sort(v.latency)
		at := func(share float64) time.Duration {
			return v.latency[min(n-1, int(math.Ceil(share*float64(n)))-1)].Round(10 * time.Microsecond)
		}
		sooner, _ := slices.BinarySearch(v.latency, 0)
		v.logf("from the answer of a request to its attributed event, before the first kill, of %d: p50 %s, p99 %s; %d came before the answer", n, at(0.5), at(0.99), sooner)
	}
	v.logf("%d problems", len(v.problems))
	for i, p := range v.problems {
		if i == 20 {
			break
		}
		v.t.Error(p)
	}
	if len(v.problems) > 0 {
		v.t.Errorf("%d problems", len(v.problems))
	}
}
