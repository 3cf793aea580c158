package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

// fields are members of an audit event, merged into a creation that is complete.
type fields map[string]any

func event(t testing.TB, changes fields) []byte {
	t.Helper()
	e := fields{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "id", "stage": "ResponseComplete",
		"requestURI": "/api/v1/namespaces/a/configmaps", "verb": "create", "user": fields{"username": "alice"},
		"objectRef":      fields{"resource": "configmaps", "namespace": "a", "name": "b", "apiVersion": "v1"},
		"responseStatus": fields{"code": 201},
		"annotations":    fields{"authorization.k8s.io/decision": "allow"},
	}
	for name, v := range changes {
		if e[name] = v; v == nil {
			delete(e, name)
		}
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func parse(t testing.TB, o audit.Options, text []byte) audit.Batch {
	t.Helper()
	var b audit.Batch
	audit.NewParser(o).Message(text, &b)
	return b
}

// one returns the record of an event that is one.
func one(t testing.TB, o audit.Options, changes fields) audit.Record {
	t.Helper()
	b := parse(t, o, event(t, changes))
	if len(b.Records) != 1 || b.Events() != 1 {
		t.Fatalf("want one record, got %+v", b)
	}
	return b.Records[0]
}

func TestWhatIsDropped(t *testing.T) {
	const no = audit.Drop(255) // it is a record
	connection := fields{"resource": "pods", "subresource": "exec", "name": "a", "apiVersion": "v1"}
	review := fields{"resource": "subjectaccessreviews", "apiGroup": "authorization.k8s.io", "apiVersion": "v1"}
	forbid, forbidden := fields{"authorization.k8s.io/decision": "forbid"}, fields{"code": 403}
	for _, c := range []struct {
		name         string
		changes      fields
		want, denied audit.Drop // by default, and with Options.Denied
	}{
		{"creation", fields{}, no, no},
		{"get", fields{"verb": "get"}, audit.DropRead, audit.DropRead},
		{"list", fields{"verb": "list"}, audit.DropRead, audit.DropRead},
		{"watch", fields{"verb": "watch", "stage": "ResponseStarted"}, audit.DropRead, audit.DropRead},
		{"exec by GET", fields{"verb": "get", "objectRef": connection}, audit.DropRead, audit.DropRead},
		{"exec by POST", fields{"objectRef": connection}, audit.DropVirtual, audit.DropVirtual},
		{"review", fields{"objectRef": review}, audit.DropVirtual, audit.DropVirtual},
		{"review of a CRD", fields{"objectRef": fields{"resource": "codereviews", "apiGroup": "x.io"}}, no, no},
		{"no resource", fields{"objectRef": nil, "requestURI": "/metrics"}, audit.DropNonResource, audit.DropNonResource},
		{"started", fields{"stage": "ResponseStarted"}, audit.DropStarted, audit.DropStarted},
		{"received", fields{"stage": "RequestReceived", "responseStatus": nil}, no, no},
		{"panic", fields{"stage": "Panic", "responseStatus": fields{"code": 500}}, no, no},
		{"conflict", fields{"responseStatus": fields{"code": 409}}, audit.DropRefused, audit.DropRefused},
		{"answered with 400, perhaps after the write", fields{"responseStatus": fields{"code": 400}, "requestURI": "/api/v1/namespaces/a/configmaps?include%4fbject=x"}, no, no},
		{"the same, of the scale of a custom resource", fields{"responseStatus": fields{"code": 400}, "verb": "update", "objectRef": fields{"resource": "w", "subresource": "scale", "apiGroup": "x.io", "apiVersion": "v1"}}, no, no},
		{"the same, perhaps with a parameter that is not known", fields{"responseStatus": fields{"code": 400}, "requestURI": "/api/v1/namespaces/a/configmaps?x=" + strings.Repeat("y", 9000) + "&includeObject=x"}, no, no},
		{"answered with 400 before the write", fields{"responseStatus": fields{"code": 400}, "requestURI": "/api/v1/namespaces/a/configmaps?fieldManager=x"}, audit.DropRefused, audit.DropRefused},
		{"deletion answered with 400", fields{"verb": "delete", "responseStatus": fields{"code": 400}}, no, no},
		{"answered with 406, perhaps after the write", fields{"verb": "patch", "responseStatus": fields{"code": 406}}, no, no},
		{"a code of a webhook", fields{"responseStatus": fields{"code": 418}}, no, no},
		{"invalid", fields{"verb": "update", "responseStatus": fields{"code": 422}}, audit.DropRefused, audit.DropRefused},
		{"delete of what does not exist", fields{"verb": "delete", "responseStatus": fields{"code": 404}}, audit.DropRefused, audit.DropRefused},
		{"delete, perhaps after its first write", fields{"verb": "delete", "responseStatus": fields{"code": 409}}, no, no},
		{"delete refused by admission, perhaps after its first write", fields{"verb": "delete", "responseStatus": forbidden}, no, no},
		{"forbidden delete", fields{"verb": "delete", "responseStatus": forbidden, "annotations": forbid}, audit.DropRefused, no},
		{"eviction, perhaps after its first write", fields{"objectRef": fields{"resource": "pods", "subresource": "eviction", "name": "a", "apiVersion": "v1"}, "responseStatus": fields{"code": 429}}, no, no},
		{"timeout", fields{"responseStatus": fields{"code": 504}}, no, no},
		{"forbidden", fields{"responseStatus": forbidden, "annotations": forbid}, audit.DropRefused, no},
		{"forbidden without a decision", fields{"responseStatus": forbidden, "annotations": nil}, audit.DropRefused, no},
		{"refused by admission", fields{"responseStatus": forbidden}, audit.DropRefused, audit.DropRefused},
		{"forbidden read", fields{"verb": "list", "responseStatus": forbidden, "annotations": forbid}, audit.DropRead, no},
		{"forbidden watch, first event", fields{"verb": "watch", "stage": "ResponseStarted", "responseStatus": forbidden, "annotations": forbid}, audit.DropRead, audit.DropRead},
		{"forbidden watch", fields{"verb": "watch", "responseStatus": forbidden, "annotations": forbid}, audit.DropRead, no},
		{"forbidden proxy by GET", fields{"verb": "get", "objectRef": connection, "responseStatus": forbidden}, audit.DropRead, audit.DropRead}, // by what answers behind the proxy
		{"forbidden exec", fields{"objectRef": connection, "responseStatus": forbidden, "annotations": forbid}, audit.DropRefused, no},
		{"forbidden URL", fields{"verb": "get", "objectRef": nil, "responseStatus": forbidden, "annotations": forbid}, audit.DropNonResource, audit.DropNonResource},
		{"unauthenticated", fields{"responseStatus": fields{"code": 401}, "annotations": nil}, audit.DropRefused, audit.DropRefused},
		{"deletecollection that failed in the middle", fields{"verb": "deletecollection", "responseStatus": fields{"code": 403}}, no, no},
		{"deletecollection that was forbidden", fields{"verb": "deletecollection", "responseStatus": fields{"code": 403}, "annotations": fields{"authorization.k8s.io/decision": "forbid"}}, audit.DropRefused, no},
		{"OPTIONS", fields{"verb": "", "responseStatus": fields{"code": 405}}, audit.DropRefused, audit.DropRefused},
	} {
		for denied, want := range map[bool]audit.Drop{false: c.want, true: c.denied} {
			b := parse(t, audit.Options{Denied: denied}, event(t, c.changes))
			var expected audit.Dropped
			if want != no {
				expected[want] = 1
			}
			if b.Dropped != expected || b.Unparsable != 0 || len(b.Records) != 1-expected.Sum() {
				t.Errorf("%s, with denied requests %v: got %+v, want dropped %v", c.name, denied, b, expected)
			}
		}
	}
}

// An authorized request that sent no response may have changed an object. The API server logs it with code 200.
func TestFakedSuccess(t *testing.T) {
	r := one(t, audit.Options{}, fields{"responseStatus": fields{"code": 200, "status": "Success", "message": "Connection closed early"}})
	if r.Code != 0 || r.Stage != audit.Complete {
		t.Errorf("got code %d at stage %d, want 0 at Complete", r.Code, r.Stage)
	}
}

func TestDryRun(t *testing.T) {
	const path = "/api/v1/namespaces/a/configmaps/b"
	options := func(dryRun ...string) fields { return fields{"kind": "DeleteOptions", "dryRun": dryRun} }
	status := fields{"kind": "Status", "apiVersion": "v1"}
	eviction := fields{"resource": "pods", "subresource": "eviction", "name": "b", "apiVersion": "v1"}
	for _, c := range []struct {
		name          string
		changes       fields
		dryRun, maybe bool
	}{
		{"creation", fields{"requestURI": path + "?dryRun=All"}, true, false},
		{"creation, encoded", fields{"requestURI": path + "?a=%zz&dry%52un=%41ll"}, true, false},
		{"another parameter", fields{"requestURI": path + "?fieldManager=dryRun%3DAll"}, false, false},
		{"delete", fields{"verb": "delete", "responseObject": status}, false, false},
		{"delete by query", fields{"verb": "delete", "responseObject": status, "requestURI": path + "?dryRun=All"}, true, false},
		{"delete by body", fields{"verb": "delete", "requestObject": options("All")}, true, false},
		{"delete whose body wins", fields{"verb": "delete", "requestObject": options(), "requestURI": path + "?dryRun=All"}, false, false},
		{"delete at Metadata", fields{"verb": "delete", "level": "Metadata"}, false, true},
		{"delete at Metadata by query", fields{"verb": "delete", "level": "Metadata", "requestURI": path + "?dryRun=All"}, false, true},
		{"deletecollection of an aggregated API", fields{"verb": "deletecollection"}, false, true},
		{"delete, body too large for Azure", fields{"verb": "delete", "requestObject": "skipped-too-big-size-object", "responseObject": status}, false, true},
		{"eviction", fields{"objectRef": eviction, "requestObject": fields{"kind": "Eviction"}}, false, false},
		{"eviction by body", fields{"objectRef": eviction, "requestObject": fields{"deleteOptions": options("All")}}, true, false},
		{"eviction by query", fields{"objectRef": eviction, "requestURI": path + "/eviction?dryRun=All"}, true, false},
		{"eviction at Metadata", fields{"objectRef": eviction}, false, true},
	} {
		if r := one(t, audit.Options{}, c.changes); r.DryRun != c.dryRun || r.MaybeDryRun != c.maybe {
			t.Errorf("%s: got dry run %v, maybe %v, want %v, %v", c.name, r.DryRun, r.MaybeDryRun, c.dryRun, c.maybe)
		}
	}
}

// A version of the request that is text other than the answer's would look like a change, although the API server reads both as one number.
func TestExpectedVersion(t *testing.T) {
	meta := func(version string) fields {
		return fields{"kind": "ConfigMap", "metadata": fields{"resourceVersion": version}}
	}
	ref := fields{"resource": "configmaps", "name": "b", "resourceVersion": "7"}
	for _, c := range []struct {
		name    string
		changes fields
		want    string
	}{
		{"update", fields{"verb": "update", "requestObject": meta("8")}, "8"},
		{"update at Metadata", fields{"verb": "update", "objectRef": ref}, "7"},
		{"leading zeros", fields{"verb": "update", "requestObject": meta("008")}, "8"},
		{"unconditional", fields{"verb": "update", "requestObject": meta("")}, ""},
		{"zero is unconditional", fields{"verb": "update", "requestObject": meta("00")}, ""},
		{"no number", fields{"verb": "update", "requestObject": meta("0x1")}, "0x1"},
		{"creation", fields{"objectRef": ref, "requestObject": meta("8")}, ""},
		{"patch", fields{"verb": "patch", "objectRef": ref, "requestObject": meta("8")}, ""},
		{"delete", fields{"verb": "delete", "objectRef": ref, "requestObject": fields{"preconditions": fields{"resourceVersion": "09"}}}, "9"},
		{"deletecollection", fields{"verb": "deletecollection", "requestObject": fields{"preconditions": fields{"resourceVersion": "9"}}}, ""},
	} {
		if r := one(t, audit.Options{}, c.changes); r.Expected != c.want {
			t.Errorf("%s: got %q, want %q", c.name, r.Expected, c.want)
		}
	}
}

// The older way to assign a Pod to a node changes the Pod.
func TestBinding(t *testing.T) {
	r := one(t, audit.Options{}, fields{"objectRef": fields{"resource": "bindings", "apiVersion": "v1", "namespace": "a", "name": "web"}})
	if r.Group != "" || r.Resource != "pods" || r.Subresource != "binding" || r.Name != "web" {
		t.Errorf("got %q %q/%q of %q, want pods/binding of web", r.Group, r.Resource, r.Subresource, r.Name)
	}
}

func TestAnswer(t *testing.T) {
	meta := fields{"name": "b", "uid": "u", "resourceVersion": "9"}
	for _, c := range []struct {
		name    string
		changes fields
		want    *audit.Answer
	}{
		{"object", fields{"responseObject": fields{"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta}}, &audit.Answer{Name: "b", UID: "u", Version: "9", Bare: true}},
		{"ending", fields{"responseObject": fields{"metadata": fields{"uid": "u", "deletionTimestamp": "2026-11-26T00:00:00Z", "finalizers": []string{"f"}}}}, &audit.Answer{UID: "u", Ending: true}},
		{"in its grace period", fields{"responseObject": fields{"metadata": fields{"uid": "u", "deletionTimestamp": "2026-11-26T00:00:00Z", "deletionGracePeriodSeconds": 30}}}, &audit.Answer{UID: "u", Ending: true}},
		{"Namespace that its controller keeps", fields{"responseObject": fields{"kind": "Namespace", "apiVersion": "v1", "metadata": meta, "spec": fields{"finalizers": []string{"kubernetes"}}}}, &audit.Answer{Name: "b", UID: "u", Version: "9"}},
		{"Namespace that nothing keeps", fields{"responseObject": fields{"kind": "Namespace", "apiVersion": "v1", "metadata": meta, "spec": fields{}}}, &audit.Answer{Name: "b", UID: "u", Version: "9", Bare: true}},
		{"grace period 0", fields{"responseObject": fields{"metadata": fields{"uid": "u", "deletionTimestamp": "2026-11-26T00:00:00Z", "deletionGracePeriodSeconds": 0}}}, &audit.Answer{UID: "u", Ending: true, Bare: true}},
		{"null", fields{"responseObject": fields{"metadata": fields{"uid": "u", "deletionTimestamp": json.RawMessage("null"), "finalizers": []string{}}}}, &audit.Answer{UID: "u", Bare: true}},
		{"Status", fields{"responseObject": fields{"kind": "Status", "apiVersion": "v1", "metadata": fields{}}}, nil},
		{"custom resource of the kind Status", fields{"responseObject": fields{"kind": "Status", "apiVersion": "x.io/v1", "metadata": fields{"uid": "u"}}}, &audit.Answer{UID: "u", Bare: true}},
		{"Table", fields{"responseObject": fields{"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta}}, nil},
		{"list of a deletecollection", fields{"verb": "deletecollection", "responseObject": fields{"metadata": meta}}, nil},
		{"truncated", fields{"annotations": fields{"audit.k8s.io/truncated": "true"}}, nil},
	} {
		r := one(t, audit.Options{}, c.changes)
		if diff := cmp.Diff(c.want, r.Answer); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if r.Truncated != (c.name == "truncated") {
			t.Errorf("%s: truncated %v", c.name, r.Truncated)
		}
	}
}

// A client chooses its user agent and, through its identity provider, names and extra. They stay bounded, valid text.
func TestHostileActor(t *testing.T) {
	long := strings.Repeat("\u00e9\x01", 1<<17)
	user := fields{"username": "a\x00\u202e\"" + long, "uid": long, "groups": []string{long, long}, "extra": fields{"k": []string{long}, "l": make([]string, 1<<17)}}
	r := one(t, audit.Options{}, fields{"user": user, "impersonatedUser": user, "userAgent": long, "sourceIPs": []string{long}, "requestURI": "/" + long})
	text, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Cut || len(text) > 512<<10 {
		t.Errorf("the record has %d bytes, and is cut: %v", len(text), r.Cut)
	}
	if err := r.Check(); err != nil {
		t.Errorf("another replica cannot take the record: %v", err)
	}
	if !strings.HasPrefix(r.Actor.User.Name, "a\x00\u202e\"") || !utf8.ValidString(r.Actor.User.Name) || len(r.Actor.User.Name) < 4000 {
		t.Errorf("the user's name became %.20q with %d bytes", r.Actor.User.Name, len(r.Actor.User.Name))
	}
	if small := one(t, audit.Options{}, fields{}); small.Cut {
		t.Error("a small record is cut")
	}
}

// A client can send as many forwarded addresses as it likes. The address from which the API server got the request is not lost behind them.
func TestLastAddress(t *testing.T) {
	addresses := make([]string, 1<<17)
	for i := range addresses {
		addresses[i] = "192.0.2.1"
	}
	r := one(t, audit.Options{}, fields{"sourceIPs": append(addresses, "10.0.0.1")})
	if list := r.Actor.SourceIPs; len(list) < 1000 || len(list) > 1<<14 || list[len(list)-1] != "10.0.0.1" || list[0] != "192.0.2.1" || !r.Cut {
		t.Errorf("%d addresses, the last one is %s", len(list), list[len(list)-1])
	}
	if r = one(t, audit.Options{}, fields{"sourceIPs": []string{"192.0.2.1", "10.0.0.1"}}); strings.Join(r.Actor.SourceIPs, " ") != "192.0.2.1 10.0.0.1" || r.Cut {
		t.Errorf("two addresses became %q", r.Actor.SourceIPs)
	}
	denied := fields{"responseStatus": fields{"code": 403}, "annotations": fields{"authorization.k8s.io/decision": "forbid"}, "sourceIPs": append(addresses, "10.0.0.1")}
	if r = one(t, audit.Options{Denied: true}, denied); len(r.Actor.SourceIPs) != 4 || r.Actor.SourceIPs[3] != "10.0.0.1" || !r.Cut {
		t.Errorf("of a denied request, the addresses are %.100q", r.Actor.SourceIPs)
	}
}

// clientTexts are events in which a client has chosen a text: with a header, with the path, or with the body. A client must not be able to hide
// a request by one of them.
func clientTexts(text string) map[string]fields {
	const path = "/api/v1/namespaces/a/configmaps/b"
	object := fields{"kind": text, "apiVersion": text, "metadata": fields{"name": text, "namespace": text, "uid": text, "resourceVersion": text}}
	user := fields{"username": text, "uid": text, "groups": []string{text, text}, "extra": fields{"k" + text: []string{text}}}
	ref := func(name string) fields {
		return fields{"objectRef": fields{"apiVersion": "v1", "resource": "configmaps", "namespace": "a", "name": "b", name: text}}
	}
	list := map[string]fields{
		"audit ID":                      {"auditID": text},
		"audit ID of a beginning":       {"auditID": text, "stage": "RequestReceived", "responseStatus": nil},
		"body of an update":             {"verb": "update", "requestObject": object},
		"body of a creation":            {"requestObject": object, "responseObject": object},
		"answer":                        {"responseObject": object},
		"preconditions":                 {"verb": "delete", "requestObject": fields{"preconditions": fields{"uid": text, "resourceVersion": text}}},
		"options of an eviction":        {"objectRef": fields{"resource": "pods", "subresource": "eviction"}, "requestObject": fields{"deleteOptions": fields{"dryRun": []string{text}, "kind": text}}},
		"UID of a Status":               {"verb": "delete", "responseStatus": fields{"code": 200, "message": text, "details": fields{"uid": text}}},
		"user agent":                    {"userAgent": text},
		"user":                          {"user": user},
		"impersonated user":             {"impersonatedUser": user},
		"forwarded addresses":           {"sourceIPs": []string{text, text}},
		"URI":                           {"requestURI": path + "?fieldManager=" + text},
		"denied request, all the texts": {"verb": "get", "auditID": text, "userAgent": text, "user": user, "objectRef": fields{"apiGroup": text, "apiVersion": text, "resource": text, "subresource": text, "namespace": text, "name": text}, "responseStatus": fields{"code": 403, "message": text}, "annotations": fields{"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": text}},
		"decision":                      {"annotations": fields{"authorization.k8s.io/decision": text}},
	}
	for _, name := range []string{"apiGroup", "apiVersion", "resource", "subresource", "namespace", "name", "uid", "resourceVersion"} {
		list["objectRef."+name] = ref(name)
	}
	return list
}

// A text of any length that a client has chosen never makes an event unparsable, and takes a bounded place.
func TestLongTexts(t *testing.T) {
	for _, length := range []int{4097, 5000, 1_000_000} {
		for name, changes := range clientTexts(strings.Repeat("\u00e9", length/2) + strings.Repeat("7", length%2)) {
			b := parse(t, audit.Options{Denied: true}, event(t, changes))
			if len(b.Records) != 1 || b.Unparsable > 0 {
				t.Errorf("%s of %d bytes: got %d records, %d unparsable (%v), want one record", name, length, len(b.Records), b.Unparsable, b.Err)
				continue
			}
			if text, err := json.Marshal(&b.Records[0]); err != nil || len(text) > 128<<10 || !utf8.Valid(text) {
				t.Errorf("%s of %d bytes: the record has %d bytes, error %v", name, length, len(text), err)
			}
			if err := b.Records[0].Check(); err != nil {
				t.Errorf("%s of %d bytes: another replica cannot take the record: %v", name, length, err)
			}
		}
	}
}

// A time whose year in UTC JSON cannot have makes no record: the inbox could not store it.
func TestYears(t *testing.T) {
	for text, stored := range map[string]bool{
		"9999-12-31T23:59:59.999999Z": true, "9999-12-31T23:59:59-00:01": false, "0000-01-01T00:00:00Z": true, "0000-01-01T00:00:00+00:01": false,
	} {
		for _, name := range []string{"requestReceivedTimestamp", "stageTimestamp"} {
			b := parse(t, audit.Options{}, event(t, fields{name: text}))
			if len(b.Records) == 1 != stored || len(b.Records) == 1 != (b.Unparsable == 0) {
				t.Errorf("%s %s: %d records, %d unparsable; is it a record: %t", name, text, len(b.Records), b.Unparsable, stored)
			}
			if _, err := json.Marshal(b.Records); err != nil {
				t.Errorf("%s %s: %v", name, text, err)
			}
		}
	}
}

// Texts that name the same thing are equal when they are cut, and others are not: the beginning and the end of a request, the name of an object,
// its resourceVersion.
func TestLongTextsCompare(t *testing.T) {
	long := strings.Repeat("a", 5000)
	of := func(id, stage string) audit.Record {
		return one(t, audit.Options{}, fields{"auditID": id, "stage": stage, "objectRef": fields{"resource": "configmaps", "namespace": "a", "name": id, "uid": id}})
	}
	begin, end, other := of(long+"1", "RequestReceived"), of(long+"1", "ResponseComplete"), of(long+"2", "ResponseComplete")
	if begin.ID != end.ID || begin.Name != end.Name || begin.UID != end.UID {
		t.Error("the beginning and the end of a request are cut in different ways")
	}
	if other.ID == end.ID || other.Name == end.Name || other.UID == end.UID {
		t.Error("texts that differ after 5,000 bytes are equal when they are cut")
	}
	if !end.Cut || len(end.ID) != 4096 || !strings.HasPrefix(end.ID, long[:4000]) || end.Name != audit.Shortened(long+"1") {
		t.Errorf("cut is %v, and the ID has %d bytes", end.Cut, len(end.ID))
	}
	update := func(version string) audit.Record {
		return one(t, audit.Options{}, fields{"verb": "update", "requestObject": fields{"metadata": fields{"resourceVersion": version}}})
	}
	if r := update(strings.Repeat("0", 5000) + "7"); r.Expected != "7" || r.Cut {
		t.Errorf("a resourceVersion with many zeros became %.20q, want 7", r.Expected)
	}
	if r := update(strings.Repeat("7", 5000)); strings.Trim(r.Expected, "0123456789") == "" {
		t.Error("a resourceVersion that is cut is a number, as one that the API server could compare")
	}
}

func TestOmittedParts(t *testing.T) {
	user := fields{"username": "alice", "groups": []string{"g"}, "extra": fields{"k": []string{"v"}}}
	all := fields{"user": user, "impersonatedUser": user, "sourceIPs": []string{"192.0.2.1"}}
	whole := audit.User{Name: "alice", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}
	ips := []string{"192.0.2.1"}
	for _, c := range []struct {
		options audit.Options
		user    audit.User
		ips     []string
	}{
		{audit.Options{}, whole, ips},
		{audit.Options{OmitGroups: true}, audit.User{Name: "alice", Extra: whole.Extra}, ips},
		{audit.Options{OmitExtra: true}, audit.User{Name: "alice", Groups: whole.Groups}, ips},
		{audit.Options{OmitSourceIPs: true}, whole, nil},
	} {
		want := audit.Actor{User: c.user, Impersonated: &c.user, SourceIPs: c.ips}
		if diff := cmp.Diff(want, one(t, c.options, all).Actor); diff != "" {
			t.Errorf("%+v: %s", c.options, diff)
		}
	}
}

func TestFormats(t *testing.T) {
	good, read := event(t, nil), event(t, fields{"verb": "get"})
	var indented bytes.Buffer
	if err := json.Indent(&indented, good, "", "  "); err != nil {
		t.Fatal(err)
	}
	list := func(items ...string) string {
		return `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[` + strings.Join(items, ",") + `]}`
	}
	azure := func(category, log string) string {
		quoted, err := json.Marshal(log)
		if err != nil {
			t.Fatal(err)
		}
		return `{"time":"2026-11-26T00:00:00Z","resourceId":"` + strings.ToUpper(cluster) + `","category":"` + category + `","properties":{"pod":"kube-apiserver-x","log":` + string(quoted) + `}}`
	}
	item := strings.Replace(strings.Replace(string(good), `"kind":"Event",`, "", 1), `"apiVersion":"audit.k8s.io/v1",`, "", 1)
	for _, c := range []struct {
		name, text                            string
		records, dropped, foreign, unparsable int
	}{
		{"event", string(good), 1, 0, 0, 0},
		{"event on several lines", indented.String(), 1, 0, 0, 0},
		{"lines", string(good) + "\n" + string(read) + "\r\n\n" + string(good) + "\n", 2, 1, 0, 0},
		{"a torn line", string(good) + "\n" + string(good[:50]) + "\n" + string(good), 2, 0, 0, 1},
		{"list", list(item, string(read), item), 2, 1, 0, 0},
		{"empty list", list(), 0, 0, 0, 0},
		{"list with items first", `{"items":[` + item + `],"apiVersion":"audit.k8s.io/v1","kind":"EventList"}`, 1, 0, 0, 0},
		{"wrong items", list(item, `{}`, `5`, `null`, `{"verb":5,"stage":"ResponseComplete"}`, strings.Replace(item, `"code":201`, `"code":"x"`, 1), item), 2, 0, 0, 5},
		{"list in lines", list(item) + "\n" + list(item, item), 3, 0, 0, 0},
		{"old version", strings.Replace(string(good), "audit.k8s.io/v1", "audit.k8s.io/v1beta1", 1), 0, 0, 0, 1},
		{"another kind", `{"kind":"ConfigMap","apiVersion":"v1"}`, 0, 0, 0, 1},
		{"no JSON", `hello`, 0, 0, 0, 1},
		{"nothing", ``, 0, 0, 0, 1},
		{"a level that is unknown", string(event(t, fields{"level": "All"})), 0, 0, 0, 1},
		{"Azure", `{"records":[` + azure("kube-audit", string(good)+"\n") + `,` + azure("kube-apiserver", "I1126 text") + `,` + azure("kube-audit-admin", string(read)) + `,` + azure("kube-audit", "cut {") + `,5]}`, 1, 1, 1, 2},
		{"Azure without records", `{"records":5}`, 0, 0, 0, 1},
		{"Azure in Azure", `{"records":[` + azure("kube-audit", `{"records":[`+azure("kube-audit", string(good))+`]}`) + `]}`, 0, 0, 0, 1},
	} {
		b := parse(t, audit.Options{AzureResourceID: cluster}, []byte(c.text))
		if len(b.Records) != c.records || b.Dropped[audit.DropRead] != c.dropped || b.Dropped[audit.DropForeign] != c.foreign || b.Unparsable != c.unparsable {
			t.Errorf("%s: got %d records, dropped %v, %d unparsable (%v), want %d, %d+%d, %d", c.name, len(b.Records), b.Dropped, b.Unparsable, b.Err, c.records, c.dropped, c.foreign, c.unparsable)
		}
		if (b.Err != nil) != (b.Unparsable > 0) {
			t.Errorf("%s: error %v", c.name, b.Err)
		}
	}
}

// cluster is the resource ID of an AKS cluster.
const cluster = "/subscriptions/1/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/a"

// An event hub may have the records of several clusters, with objects of the same names. The users of another cluster have changed nothing in this one, and
// nothing was denied to them here.
func TestRecordsOfAnotherCluster(t *testing.T) {
	azure := func(id, user string) string {
		log, err := json.Marshal(string(event(t, fields{"user": fields{"username": user}, "responseStatus": fields{"code": 403}, "annotations": fields{}})))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"category":"kube-audit",%s"properties":{"log":%s}}`, id, log)
	}
	text := []byte(`{"records":[` + strings.Join([]string{
		azure(`"resourceId":"`+strings.ToUpper(cluster)+`",`, "alice"), azure(`"resourceId":"`+cluster+`b",`, "mallory"), azure(`"resourceId":null,`, "eve"), azure(``, "eve"),
	}, ",") + `]}`)
	b := parse(t, audit.Options{Denied: true, AzureResourceID: cluster}, text)
	if len(b.Records) != 1 || b.Records[0].Actor.User.Name != "alice" || b.Dropped[audit.DropForeign] != 3 || b.Unparsable != 0 {
		t.Errorf("got %+v, want the record of alice, and three of other clusters", b)
	}
	b = parse(t, audit.Options{Denied: true}, text)
	if len(b.Records) != 0 || b.Unparsable != 4 || !errors.Is(b.Err, audit.ErrNoCluster) {
		t.Errorf("without a resource ID: got %+v, want no record", b)
	}
}

// A body that is no EventList is refused as a whole, and leaves no trace.
func TestBodyIsNoEventList(t *testing.T) {
	p := audit.NewParser(audit.Options{})
	item := string(event(t, nil))
	for _, body := range []string{
		``, `5`, `[]`, item, `{"kind":"EventList","apiVersion":"audit.k8s.io/v1beta1","items":[` + item + `]}`,
		`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + item + `,`, `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + item + `]}{}`,
		`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":5}`, `{"items":[` + item + `]}`,
	} {
		b := audit.Batch{Unparsable: 1}
		if err := p.List([]byte(body), &b); err == nil {
			t.Errorf("accepted %.100s", body)
		}
		if b.Events() != 1 {
			t.Errorf("kept something of %.100s", body)
		}
	}
	var version audit.Batch
	err := p.List([]byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1alpha1","items":[]}`), &version)
	if err == nil || !strings.Contains(err.Error(), `kind EventList has apiVersion "audit.k8s.io/v1alpha1": only audit.k8s.io/v1 is read`) {
		t.Errorf("the error does not name the version: %v", err)
	}
}

// Whatever a text is, each event is counted once, records are bounded and valid, and another way to deliver the same gives the same.
func FuzzMessage(f *testing.F) {
	log, err := os.ReadFile(realLog)
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		f.Add(line)
	}
	f.Add([]byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{"verb":"x","stage":"Panic","objectRef":{},"level":"Request"},5]}`))
	f.Add([]byte(`{"records":[{"category":"kube-audit","resourceId":"` + cluster + `","properties":{"log":"{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\"}\n"}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := audit.NewParser(audit.Options{Denied: true, AzureResourceID: cluster})
		var b, again, list audit.Batch
		p.Message(text, &b)
		for i := range b.Records {
			encoded, err := json.Marshal(&b.Records[i])
			if err != nil {
				t.Fatal(err)
			}
			var decoded audit.Record
			if err := json.Unmarshal(encoded, &decoded); err != nil {
				t.Fatal(err)
			}
			if len(encoded) > 1<<20 {
				t.Fatalf("a record of %d bytes", len(encoded))
			}
		}
		p.Message(append(bytes.Clone(text), '\n'), &again)
		if diff := cmp.Diff(b.Records, again.Records); diff != "" && !bytes.Contains(text, []byte("\n")) {
			t.Fatal(diff)
		}
		if err := p.List(text, &list); err == nil && len(list.Records) != len(b.Records) {
			t.Fatalf("%d records as a list, %d as a message", len(list.Records), len(b.Records))
		}
	})
}

// Whatever texts a client chooses, its requests are records, or are dropped for what they are.
func FuzzClientTexts(f *testing.F) {
	f.Add("a")
	f.Add(strings.Repeat("\x00\u202e\"\\u00e9", 1<<10))
	f.Fuzz(func(t *testing.T, text string) {
		for name, changes := range clientTexts(text) {
			if b := parse(t, audit.Options{Denied: true}, event(t, changes)); b.Unparsable > 0 || b.Events() != 1 {
				t.Fatalf("%s %q: got %+v", name, text, b)
			}
		}
	})
}

// The answer to a refused request is kept, within a limit.
func TestDeniedMessage(t *testing.T) {
	denied := audit.Options{Denied: true}
	forbidden := fields{"responseStatus": fields{"code": 403, "message": "no"}, "annotations": fields{"authorization.k8s.io/decision": "forbid"}, "verb": "get"}
	if r := one(t, denied, forbidden); !r.Denied() || r.Message != "no" || r.Cut {
		t.Errorf("got %+v", r)
	}
	forbidden["responseStatus"] = fields{"code": 403, "message": strings.Repeat("ü", 1000)}
	if r := one(t, denied, forbidden); len(r.Message) != 1024 || !r.Cut {
		t.Errorf("%d bytes of the message, cut is %t", len(r.Message), r.Cut)
	}
	if r := one(t, denied, fields{"responseStatus": fields{"code": 201, "message": "no"}}); r.Denied() || r.Message != "" {
		t.Errorf("got %+v", r)
	}
}

// A storm of reads: what the API server sends at level Metadata for controllers and kubelets.
func BenchmarkDroppedReads(b *testing.B) {
	for _, denied := range []bool{false, true} {
		b.Run(fmt.Sprintf("denied=%t", denied), func(b *testing.B) { droppedReads(b, audit.Options{Denied: denied}) })
	}
}

func droppedReads(b *testing.B, o audit.Options) {
	read := event(b, fields{
		"level": "Metadata", "verb": "get", "requestURI": "/api/v1/namespaces/kube-system/configmaps/" + strings.Repeat("a", 64), "auditID": strings.Repeat("b", 36),
		"user":      fields{"username": "system:serviceaccount:kube-system:" + strings.Repeat("c", 20), "uid": strings.Repeat("d", 36), "groups": []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}, "extra": fields{"authentication.kubernetes.io/credential-id": []string{"JTI=" + strings.Repeat("e", 36)}}},
		"userAgent": "controller/v1.36.3 (linux/amd64) kubernetes/" + strings.Repeat("f", 7), "sourceIPs": []string{"192.0.2.1"},
		"responseStatus": fields{"metadata": fields{}, "code": 200}, "requestReceivedTimestamp": "2026-11-26T02:19:22.123456Z", "stageTimestamp": "2026-11-26T02:19:22.125456Z",
		"annotations": fields{"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "RBAC: allowed by ClusterRoleBinding \"x\" of ClusterRole \"y\" to ServiceAccount \"z/z\""},
	})
	const batch = 400 // of the API server's webhook backend
	body := []byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[` + strings.TrimSuffix(strings.Repeat(string(read)+",", batch), ",") + `]}`)
	p := audit.NewParser(o)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		var got audit.Batch
		if err := p.List(body, &got); err != nil || got.Dropped[audit.DropRead] != batch {
			b.Fatal(err, fmt.Sprint(got.Dropped))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/record")
	b.ReportMetric(float64(len(read)), "B/record")
}

// A write that becomes a record, at level RequestResponse.
func BenchmarkRecord(b *testing.B) {
	log, err := os.ReadFile(realLog)
	if err != nil {
		b.Fatal(err)
	}
	line, _, _ := bytes.Cut(log, []byte("\n"))
	p := audit.NewParser(audit.Options{})
	b.ReportAllocs()
	b.SetBytes(int64(len(line)))
	var got audit.Batch
	for b.Loop() {
		got.Reset()
		p.Lines(line, &got)
		if len(got.Records) != 1 {
			b.Fatal(got.Err)
		}
	}
}

// A deletecollection names in its response what it has selected.
func TestSelected(t *testing.T) {
	many := make([]fields, 101)
	for i := range many {
		many[i] = fields{"metadata": fields{"name": fmt.Sprint(i)}}
	}
	for name, c := range map[string]struct {
		response any
		want     []string
	}{
		"two objects":    {fields{"kind": "ConfigMapList", "apiVersion": "v1", "items": []fields{{"metadata": fields{"name": "b", "uid": "u"}}, {"metadata": fields{"name": "c"}}}}, []string{"b", "c"}},
		"none":           {fields{"kind": "ConfigMapList", "apiVersion": "v1", "items": []fields{}}, []string{}},
		"too many":       {fields{"kind": "ConfigMapList", "apiVersion": "v1", "items": many}, nil},
		"a Table":        {fields{"kind": "Table", "apiVersion": "meta.k8s.io/v1", "rows": []fields{}}, nil},
		"a Status":       {fields{"kind": "Status", "apiVersion": "v1"}, nil},
		"it has no list": {fields{"kind": "ConfigMapList", "apiVersion": "v1"}, nil},
		"it is not read": {nil, nil},
	} {
		r := one(t, audit.Options{}, fields{"verb": "deletecollection", "responseStatus": fields{"code": 200}, "responseObject": c.response})
		if diff := cmp.Diff(c.want, r.Selected); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
