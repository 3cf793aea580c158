package campaign

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// history is a correct history: one object is created, changed and deleted, one stays, and one is created and deleted in a gap.
type history struct {
	script   script
	ledger   *ledger
	messages []bus.Message
	cluster  map[string]map[string]map[string]any
	taken    map[string]bool // resources that were removed from the configuration for a while
}

const resource = "configmaps"

func rightHistory() *history {
	h := &history{ledger: newLedger(), cluster: map[string]map[string]map[string]any{resource: {}}}
	t := target{Type: kube.ConfigMaps}
	for _, o := range []*object{
		{uid: "u1", name: "n/a", versions: []version{{rv: 11}, {rv: 12}}, deleted: true, after: 12, before: 14},
		{uid: "u2", name: "n/b", versions: []version{{rv: 14}, {rv: 25}}},
		{uid: "u3", name: "n/c", versions: []version{{rv: 21}, {rv: 22}}, deleted: true, after: 22, before: 25},
	} {
		o.typ = t
		for i := range o.versions {
			o.versions[i].in, o.versions[i].body = true, bodyAt(o.uid, o.name, o.versions[i].rv)
		}
		h.ledger.objects[o.uid] = o
	}
	h.cluster[resource]["u2"] = bodyAt("u2", "n/b", 25)
	h.of("gap", "", "", bus.Data{})
	h.of("synced", "", "10", bus.Data{})
	h.about("added", "u1", "n/a", 11)
	h.about("modified", "u1", "n/a", 12)
	h.about("deleted", "u1", "n/a", 13)
	h.about("added", "u2", "n/b", 14)
	h.of("gap", "14", "14", bus.Data{From: "14"})
	h.of("synced", "14", "24", bus.Data{From: "14"})
	h.about("modified", "u2", "n/b", 25)
	return h
}

func bodyAt(uid, name string, rv uint64) map[string]any {
	return map[string]any{"metadata": map[string]any{"uid": uid, "name": name, "resourceVersion": fmt.Sprint(rv)}, "data": map[string]any{"at": fmt.Sprint(rv)}}
}

func (h *history) of(typ, from, rv string, data bus.Data) {
	if h.script.plan == 0 {
		h.script.configure(resource)
	}
	data.From = from
	h.add(h.script.collection(typ, resource, resource, rv, data))
}

func (h *history) about(typ, uid, name string, rv uint64) {
	body := bodyAt(uid, name, rv)
	if typ == "deleted" {
		body["data"] = map[string]any{"at": fmt.Sprint(rv - 1)}
	}
	m := h.script.about(typ, resource, resource, uid, name, fmt.Sprint(rv))
	m.Data.Object, _ = json.Marshal(body)
	h.add(m)
}

func (h *history) add(m bus.Message) {
	m.Place = fmt.Sprintf("nats:%d", len(h.messages)+1)
	h.messages = append(h.messages, m)
}

func (h *history) judge(pair string) []string {
	p, err := FindPair(pair)
	if err != nil {
		return []string{err.Error()}
	}
	return h.verdict(p).judge()
}

func (h *history) verdict(p Pair) *verdict {
	for i := range h.messages {
		if m := &h.messages[i]; m.Raw == nil {
			m.Raw = raw(m)
		}
	}
	return &verdict{pair: p, name: "c", ledger: h.ledger, messages: h.messages, cluster: h.cluster, taken: h.taken}
}

// A checker that accepts a wrong history would be worthless, so each rule is broken once.
func TestVerdict(t *testing.T) {
	const strict = "nats-eo/nats"
	if problems := rightHistory().judge(strict); len(problems) > 0 {
		t.Fatalf("the correct history has the problems %v, want none", problems)
	}
	take := func(h *history, at ...int) {
		slices.Reverse(at)
		for _, i := range at {
			h.messages = slices.Delete(h.messages, i, i+1)
		}
	}
	for name, c := range map[string]struct {
		rule string
		do   func(h *history)
	}{
		"an update is lost":                {"complete", func(h *history) { take(h, 3) }},
		"a deletion is lost":               {"complete", func(h *history) { take(h, 4) }},
		"all events of an object are lost": {"complete", func(h *history) { take(h, 2, 3, 4) }},
		"the last state is lost":           {"state", func(h *history) { take(h, 8) }},
		"a gap is not declared":            {"complete", func(h *history) { take(h, 6, 7) }},
		"a gap is not closed":              {"declared", func(h *history) { take(h, 7) }},
		"closed without a gap":             {"declared", func(h *history) { take(h, 6) }},
		"two events change places":         {"order", func(h *history) { h.messages[2], h.messages[3] = h.messages[3], h.messages[2] }},
		"an event comes twice":             {"once", func(h *history) { h.messages = append(h.messages, h.messages[8]) }},
		"an object that never existed":     {"invented", func(h *history) { h.about("added", "u9", "n/z", 26) }},
		"a version that never existed":     {"invented", func(h *history) { h.about("modified", "u2", "n/b", 26) }},
		"a deletion that never happened":   {"invented", func(h *history) { h.about("deleted", "u2", "n/b", 26) }},
		"not selected":                     {"invented", func(h *history) { h.ledger.objects["u1"].versions[1].in = false }},
		"another object's body":            {"body", func(h *history) { h.messages[8].Data.Object = h.messages[5].Data.Object }},
		"another object's body, deleted":   {"body", func(h *history) { h.messages[4].Data.Object = h.messages[5].Data.Object }},
		"another object's name":            {"body", func(h *history) { h.messages[8].Attributes["subject"] = "n/a" }},
		"the value of a Secret":            {"leak", func(h *history) { h.messages[8].Raw = []byte(planted) }},
		"an earlier writer writes again":   {"fenced", func(h *history) { h.messages[3].Term = 1 }},
		"a deletion of another version":    {"order", func(h *history) { h.messages[4].Attributes["resourceversion"] = "11" }},
		"a deletion of another run":        {"order", func(h *history) { h.messages[4].Attributes["run"] = "2" }},
		"another plan": {"state", func(h *history) {
			h.messages[7].Attributes["plan"], h.messages[7].Attributes["plandigest"] = "2", "another"
		}},
		"published as added again": {"order", func(h *history) { h.messages[8].Attributes["type"] = "io.kubebridge.resource.added.v1" }},
		"the object that had the name before is not deleted": {"order", func(h *history) {
			take(h, 4)
			h.messages[4].Attributes["subject"] = "n/a"
			h.ledger.objects["u2"].name = "n/a"
		}},
	} {
		h := rightHistory()
		for i := range h.messages {
			h.messages[i].Attributes = maps.Clone(h.messages[i].Attributes)
		}
		c.do(h)
		if problems := h.judge(strict); !slices.ContainsFunc(problems, func(s string) bool { return strings.HasPrefix(s, "["+c.rule+"]") }) {
			t.Errorf("%s: %v, want [%s]", name, problems, c.rule)
		}
	}
}

// restoredHistory is a correct history with a restore of etcd. The backup is from version 14, when u1 exists. It is restored after version
// 32. In between, u1 is deleted, u2 is changed and u4 is created. After the restore, u2 gets another change, at a version that the first
// history has used already.
func restoredHistory() *history {
	h := &history{ledger: newLedger(), cluster: map[string]map[string]map[string]any{resource: {}}}
	make := func(uid, name string, rvs ...uint64) *object {
		o := &object{typ: target{Type: kube.ConfigMaps}, uid: uid, name: name}
		for _, rv := range rvs {
			o.versions = append(o.versions, version{rv: rv, in: true, body: bodyAt(uid, name, rv)})
		}
		h.ledger.objects[uid] = o
		return o
	}
	at := func(history string, o *object, rv uint64) {
		o.versions = append(o.versions, version{rv: rv, in: true, body: bodyIn(history, o.uid, o.name, rv)})
	}
	u1, u2 := make("u1", "n/a", 11), make("u2", "n/b", 14)
	saved := h.ledger.backup()
	u1.deleted, u1.after, u1.before = true, 11, 32
	at("", u2, 31)
	make("u4", "n/d", 32)
	back := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h.ledger.restored(saved, back)
	at("other", saved["u2"], 20)
	at("other", saved["u2"], 31)
	h.cluster[resource]["u1"], h.cluster[resource]["u2"] = bodyAt("u1", "n/a", 11), bodyIn("other", "u2", "n/b", 31)

	h.of("gap", "", "", bus.Data{})
	h.of("synced", "", "14", bus.Data{})
	h.about("present", "u1", "n/a", 11)
	h.about("present", "u2", "n/b", 14)
	h.about("deleted", "u1", "n/a", 30)
	h.messages[4].Data.Object, _ = json.Marshal(bodyAt("u1", "n/a", 11))
	h.about("modified", "u2", "n/b", 31)
	h.about("added", "u4", "n/d", 32)
	h.of("gap", "32", "", bus.Data{Reason: "history"})
	h.about("added", "u1", "n/a", 11)
	h.about("modified", "u2", "n/b", 20)
	h.messages[9].Data.Object, _ = json.Marshal(bodyIn("other", "u2", "n/b", 20))
	h.about("deleted", "u4", "n/d", 21)
	h.messages[10].Data.Object, _ = json.Marshal(bodyAt("u4", "n/d", 32))
	h.of("synced", "32", "21", bus.Data{})
	h.about("modified", "u2", "n/b", 31)
	h.messages[12].Data.Object, _ = json.Marshal(bodyIn("other", "u2", "n/b", 31))
	for i := range h.messages {
		a := h.messages[i].Attributes
		a["time"] = back.Add(-time.Minute).Format(time.RFC3339Nano)
		if i >= 7 {
			a["time"], a["epoch"] = back.Add(time.Minute).Format(time.RFC3339Nano), "2"
		}
	}
	return h
}

func bodyIn(history, uid, name string, rv uint64) map[string]any {
	body := bodyAt(uid, name, rv)
	body["data"] = map[string]any{"at": history + fmt.Sprint(rv)}
	return body
}

// watched changes how all objects of a history are watched.
func (h *history) watched(change func(*target)) {
	for _, o := range h.ledger.objects {
		change(&o.typ)
	}
}

// TestVerdictOfMore tests rules about events that are not in every history: with a correct history, and with one that breaks the rule.
func TestVerdictOfMore(t *testing.T) {
	quiet := func() *history { // the last change of u2 changes only ignored fields
		h := rightHistory()
		h.watched(func(t *target) { t.ignore = true })
		last := h.ledger.objects["u2"].versions[1].body
		last["data"], h.cluster[resource]["u2"] = map[string]any{"at": "14"}, last
		h.messages = h.messages[:8]
		return h
	}
	diff := func() *history {
		h := rightHistory()
		h.watched(func(t *target) { t.diff = "both" })
		for _, i := range []int{3, 8} {
			before := h.messages[max(2, i-3)]
			m := &h.messages[i]
			m.Data.Base, m.Data.Before = before.RV(), before.Data.Object
			m.Data.Patch = []byte(fmt.Sprintf(`[{"op":"replace","path":"/metadata/resourceVersion","value":%q},{"op":"replace","path":"/data/at","value":%q}]`, m.RV(), m.RV()))
		}
		return h
	}
	resync := func() *history {
		h := rightHistory()
		h.of("gap", "25", "25", bus.Data{Reason: "resync"})
		h.about("present", "u2", "n/b", 25)
		h.of("synced", "25", "25", bus.Data{Reason: "resync"})
		return h
	}
	foundOut := func() *history { // the bridge notices the restore in a list, whose gap does not say so yet
		h := restoredHistory()
		h.of("gap", "32", "", bus.Data{Reason: "expired"})
		expired := h.messages[13]
		expired.Attributes["time"], expired.Attributes["run"] = h.messages[12].Attributes["time"], "1"
		h.messages = slices.Insert(h.messages[:13], 7, expired)
		return h
	}
	closed := func() *history {
		h := rightHistory()
		h.taken = map[string]bool{resource: true}
		h.of("closed", "25", "25", bus.Data{Reason: "removed"})
		h.of("gap", "", "", bus.Data{})
		h.about("present", "u2", "n/b", 25)
		h.of("synced", "", "26", bus.Data{Reason: "reset"})
		return h
	}
	cut := func(i int) func(*history) { return func(h *history) { h.messages = slices.Delete(h.messages, i, i+1) } }
	for name, c := range map[string]struct {
		right func() *history
		rule  string
		do    func(h *history)
	}{
		"a change of ignored fields is published": {quiet, "quiet", func(h *history) {
			h.about("modified", "u2", "n/b", 25)
			h.messages[8].Data.Object, _ = json.Marshal(h.ledger.objects["u2"].versions[1].body)
		}},
		"a change of other fields is not published": {quiet, "complete", cut(3)},
		"a patch makes another body":                {diff, "diff", func(h *history) { h.messages[8].Data.Patch = []byte(`[]`) }},
		"a patch that cannot be applied":            {diff, "diff", func(h *history) { h.messages[8].Data.Patch = []byte(`[{"op":"remove","path":"/no"}]`) }},
		"the field before has another body":         {diff, "diff", func(h *history) { h.messages[8].Data.Before = h.messages[2].Data.Object }},
		"a base that was not published":             {diff, "diff", func(h *history) { h.messages[8].Data.Base = "13" }},
		"no patch":                                  {diff, "diff", func(h *history) { h.messages[8].Data.Patch = nil }},
		"a patch that is not configured":            {diff, "diff", func(h *history) { h.watched(func(t *target) { t.diff = "" }) }},
		"a resync leaves something out":             {resync, "again", cut(10)},
		"a resync that excuses nothing":             {resync, "complete", func(h *history) { cut(10)(h); cut(8)(h); h.messages[8].Data.From = "14" }},
		"closed while it is configured":             {closed, "invented", func(h *history) { h.taken = nil }},
		"closed at the end while it is configured":  {closed, "declared", func(h *history) { h.messages = h.messages[:10] }},
		"published while it is closed":              {closed, "invented", func(h *history) { h.messages[10], h.messages[11] = h.messages[11], h.messages[10] }},
		"a verification finds something":            {rightHistory, "complete", func(h *history) { h.messages[6].Data.Reason = "drift" }},
		"another history":                           {rightHistory, "invented", func(h *history) { h.messages[8].Attributes["epoch"] = "2" }},
		"a restore is not declared":                 {restoredHistory, "declared", func(h *history) { h.messages = slices.Delete(h.messages, 7, 12) }},
		"an undone object is not deleted":           {restoredHistory, "state", cut(10)},
		"a restored object is not published":        {restoredHistory, "state", cut(8)},
		"a change before the restore is lost":       {restoredHistory, "complete", cut(5)},
		"a change after the restore is lost":        {restoredHistory, "complete", cut(12)},
		"an undone version is published after the restore": {restoredHistory, "invented", func(h *history) {
			h.messages = append(h.messages, h.messages[6])
			h.messages[13].Attributes = maps.Clone(h.messages[13].Attributes)
			h.messages[13].Attributes["epoch"], h.messages[13].Attributes["id"] = "2", "e2:again"
		}},
		"the restore is noticed in a list and not declared": {foundOut, "declared", cut(8)},
		"the gap of a noticed restore is not closed":        {foundOut, "declared", cut(12)},
		"a change after a noticed restore is lost":          {foundOut, "complete", cut(13)},
		"the other history's body":                          {restoredHistory, "body", func(h *history) { h.messages[12].Data.Object = h.messages[5].Data.Object }},
	} {
		if problems := c.right().judge("nats-eo/nats"); len(problems) > 0 {
			t.Fatalf("%s: the correct history has the problems %v, want none", name, problems)
		}
		h := c.right()
		c.do(h)
		if problems := h.judge("nats-eo/nats"); !slices.ContainsFunc(problems, func(s string) bool { return strings.HasPrefix(s, "["+c.rule+"]") }) {
			t.Errorf("%s: %v, want [%s]", name, problems, c.rule)
		}
	}
}

// Correct histories must not be reported: a repeat where events may be repeated, and objects that consumers drop at a declared
// reset.
func TestVerdictExcuses(t *testing.T) {
	h := rightHistory()
	h.messages = append(h.messages, h.messages[8])
	if problems := h.judge("nats-alo/file"); len(problems) > 0 {
		t.Errorf("a repeat with at-least-once: %v", problems)
	}
	h = rightHistory()
	h.messages = h.messages[:2] // the stream was lost; the reset covers everything after that
	h.messages = append(h.messages, rightHistory().messages[2:4]...)
	h.of("gap", "", "", bus.Data{Reset: true})
	h.about("present", "u2", "n/b", 25)
	h.of("synced", "", "30", bus.Data{})
	if problems := h.judge("nats-eo/nats"); len(problems) > 0 {
		t.Errorf("a declared reset: %v", problems)
	}
}

// An object may be published as added again only if delivery is not exactly once and the bridge was killed, and not in an earlier run.
func TestAddedAgain(t *testing.T) {
	judged := func(change func(v *verdict)) bool {
		h := rightHistory()
		last := &h.messages[8]
		last.Attributes["type"], last.Attributes["origin"] = "io.kubebridge.resource.added.v1", "reconcile"
		v := h.verdict(Pair{Bus: "nats", Delivery: "at-least-once"})
		v.killed = true
		change(v)
		return slices.ContainsFunc(v.judge(), func(s string) bool { return strings.HasPrefix(s, "[order]") })
	}
	for name, c := range map[string]struct {
		change func(v *verdict)
		wrong  bool
	}{
		"all three":    {func(*verdict) {}, false},
		"exactly once": {func(v *verdict) { v.pair.Delivery = "exactly-once" }, true},
		"not killed":   {func(v *verdict) { v.killed = false }, true},
		"the same run": {func(v *verdict) { v.messages[8].Attributes["run"] = "1" }, false},
		"before it":    {func(v *verdict) { v.messages[8].Attributes["run"] = "0" }, true},
	} {
		if got := judged(c.change); got != c.wrong {
			t.Errorf("%s: an order problem is reported: %t, want %t", name, got, c.wrong)
		}
	}
}

// With diff, a deletion has the body that was published last, even if a restore of etcd has undone it. Without diff, the bridge does not
// keep this body.
func TestDeletedWithTheKeptBody(t *testing.T) {
	for diff, wrong := range map[string]bool{"both": false, "": true} {
		h := restoredHistory()
		u2 := h.ledger.objects["u2"]
		u2.deleted, u2.after, u2.before = true, 31, 41
		h.messages = h.messages[:12]
		h.messages = slices.Delete(h.messages, 9, 10)
		h.about("deleted", "u2", "n/b", 40)
		last := &h.messages[len(h.messages)-1]
		last.Data.Object, _ = json.Marshal(bodyIn("", "u2", "n/b", 31))
		last.Attributes["time"], last.Attributes["epoch"], last.Attributes["id"] = h.messages[8].Attributes["time"], "2", "e2:kept"
		h.watched(func(target *target) { target.diff = diff })
		v := h.verdict(Pair{Bus: "nats", Delivery: "exactly-once"})
		if got := slices.ContainsFunc(v.judge(), func(s string) bool { return strings.HasPrefix(s, "[body]") }); got != wrong {
			t.Errorf("diff %q: a body problem is reported: %t, want %t", diff, got, wrong)
		}
	}
}

// An object left the selection before the backup, and is deleted in the restored history. The bridge published its deletion before the
// restore, so that this event does not show that the collection continues in the restored history.
func TestLeftBeforeARestore(t *testing.T) {
	h := restoredHistory()
	for era, objects := range h.ledger.eras() {
		o := &object{typ: target{Type: kube.ConfigMaps}, uid: "u5", name: "n/e", versions: []version{
			{rv: 12, in: true, old: true, body: bodyAt("u5", "n/e", 12)}, {rv: 13, old: true, body: bodyAt("u5", "n/e", 13)},
		}}
		if era > 0 {
			o.deleted, o.after, o.before = true, 13, 32
		}
		objects["u5"] = o
	}
	early := &history{script: script{}}
	early.of("gap", "", "", bus.Data{})
	early.messages = nil
	early.about("present", "u5", "n/e", 12)
	early.about("deleted", "u5", "n/e", 29)
	early.messages[1].Data.Object, _ = json.Marshal(bodyAt("u5", "n/e", 12))
	for i := range early.messages {
		early.messages[i].Attributes["time"] = h.messages[0].Attributes["time"]
	}
	h.messages = slices.Insert(h.messages, 4, early.messages[1])
	h.messages = slices.Insert(h.messages, 1, early.messages[0])
	if problems := h.judge("nats-eo/nats"); len(problems) > 0 {
		t.Errorf("the problems are %v, want none", problems)
	}
}

// TestDeletionsOfTwoHistories: an object is deleted before a restore, and again after it, at other versions. A watch's event about the
// first deletion does not show that the collection continues in the second history.
func TestDeletionsOfTwoHistories(t *testing.T) {
	o := &object{deleted: true, after: 499, before: 595}
	for _, x := range []struct {
		origin, version string
		want            bool
	}{{"watch", "550", true}, {"watch", "640", false}, {"watch", "499", false}, {"reconcile", "640", true}} {
		m := &bus.Message{Attributes: map[string]string{"type": "io.kubebridge.resource.deleted.v1", "origin": x.origin, "deletionversion": x.version}}
		if got := o.says(m); got != x.want {
			t.Errorf("deleted at %s, origin %s: says returns %t, want %t", x.version, x.origin, got, x.want)
		}
	}
}

// TestGapsFromTheStopOn: a gap that begins while the bridge stops has no end. All other events of that time are judged.
func TestGapsFromTheStopOn(t *testing.T) {
	stopped := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	message := func(typ, collection string, at time.Duration) bus.Message {
		return bus.Message{Attributes: map[string]string{
			"type": "io.kubebridge." + typ + ".v1", "collection": collection, "time": stopped.Add(at).Format(time.RFC3339Nano),
		}}
	}
	all := []bus.Message{
		message("collection.gap", "x", -time.Second), message("resource.added", "y", time.Second), message("collection.gap", "y", time.Second),
		message("resource.added", "y", time.Second), message("collection.synced", "x", 2*time.Second),
	}
	if got := withoutGapsFrom(stopped, all); len(got) != 3 || got[1].Collection() != "y" || got[2].Collection() != "x" {
		t.Errorf("%d messages are judged, want 3, the last two of y and x: %v", len(got), got)
	}
}

// What a killed bridge had recorded is published, also within a gap, unless the gap was open when it was killed. A gap needs a reason.
func TestVerdictOfBuffer(t *testing.T) {
	p := Pair{Name: "nats-eo/nats", Bus: "nats", Delivery: "exactly-once", Store: "nats"}
	killed := kill{at: time.Now(), since: 5 * time.Second}
	at := func(m *bus.Message, after time.Duration) {
		m.Attributes["time"] = killed.at.Add(after).Format(time.RFC3339Nano)
	}
	for name, c := range map[string]struct {
		want string // beginning of the only problem; "": none
		do   func(*verdict)
	}{
		"what was recorded is published": {"", func(v *verdict) {
			v.buffered.recorded = map[string]map[uint64]kill{"u1": {11: killed, 12: killed, 13: killed}, "u2": {25: killed}}
		}},
		"a recorded version is lost in a gap": {"[complete] version 22", func(v *verdict) {
			v.buffered.recorded = map[string]map[uint64]kill{"u3": {22: killed}}
		}},
		"a recorded deletion is lost in a gap": {"[complete] the deletion", func(v *verdict) {
			v.buffered.recorded = map[string]map[uint64]kill{"u3": {23: killed}}
		}},
		"the gap was open": {"", func(v *verdict) {
			v.buffered.recorded = map[string]map[uint64]kill{"u3": {22: killed, 23: killed}}
			at(&v.messages[6], -time.Second)
		}},
		"the gap was closed": {"[complete] version 22", func(v *verdict) {
			v.buffered.recorded = map[string]map[uint64]kill{"u3": {22: killed}}
			at(&v.messages[6], -2*time.Second)
			at(&v.messages[7], -time.Second)
		}},
		"a gap although no history was lost": {"[declared]", func(v *verdict) {
			v.messages[6].Data.Reason, v.expires = "expired", map[string]bool{resource: false}
			for i := range 6 {
				at(&v.messages[i], -time.Minute)
			}
		}},
	} {
		h := rightHistory()
		v := h.verdict(p)
		v.buffered = &buffering{}
		at(&v.messages[6], time.Second)
		at(&v.messages[7], 2*time.Second)
		c.do(v)
		problems := v.judge()
		if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0], c.want)) {
			t.Errorf("%s: problems %q, want %q", name, problems, c.want)
		}
	}
}
