package encode_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

func secret(version, pin, label string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"shop","uid":"u","resourceVersion":%q,"labels":{"a":%q}},"data":{"pin":%q}}`, version, label, pin)
}

// Readers of the checkpoint, which may be on a bus, have no digest with which they could test guesses of a redacted
// value. A change of a published value still changes the digest. With a key, a change of a redacted value changes it as well.
func TestDigestsRevealNothing(t *testing.T) {
	for name, x := range map[string]struct {
		key      string
		resource string
		redacted bool
		differs  bool // whether the digests differ if only redacted values differ
	}{
		"a key":            {"0123456789abcdef", "secrets", true, true},
		"no key":           {"", "secrets", true, false},
		"nothing redacted": {"0123456789abcdef", "pods", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			prepared := func(key, resource, raw string) *reconcile.Sighting {
				e := newEncoder(encode.Options{Config: encode.Config{Secrets: shape.Secrets{Key: []byte(key)}}, Log: zap.NewNop()})
				if _, err := configure(e, event.Collection{Resource: resource}, encode.Settings{Ignore: []string{"status"}}); err != nil {
					t.Fatal(err)
				}
				s := sighting(raw, reconcile.Watch)
				e.Prepare(resource, s, nil, false)
				return s
			}
			one, guess, other := secret("5", "MQ==", "a"), secret("5", "Mg==", "a"), secret("5", "MQ==", "b")
			of := func(raw string) *reconcile.Sighting { return prepared(x.key, x.resource, raw) }
			plain := prepared("", "pods", one)
			if s := of(one); (s.Digest != plain.Digest) != x.redacted || (s.Significant != plain.Significant) != x.redacted {
				t.Errorf("digests %x, %x; without redaction %x, %x", s.Digest, s.Significant, plain.Digest, plain.Significant)
			}
			if s, g := of(one), of(guess); (s.Digest != g.Digest) != x.differs || (s.Significant != g.Significant) != x.differs {
				t.Errorf("of another value: %x and %x, %x and %x", s.Digest, g.Digest, s.Significant, g.Significant)
			}
			if s, o := of(one), of(other); s.Digest == o.Digest || s.Significant == o.Significant {
				t.Errorf("another body has the digests %x, %x too", o.Digest, o.Significant)
			}
			if s, again := of(one), of(one); s.Digest != again.Digest || s.Significant != again.Significant {
				t.Error("the digests of one object differ")
			}
		})
	}
}

// No record contains a redacted value, in any format and for any type of event.
func TestRedaction(t *testing.T) {
	for _, format := range []event.Format{event.Structured, event.Binary, event.Plain} {
		r := newRig(t, event.Collection{Resource: "secrets"}, encode.Settings{Before: true, ChangedBy: true}, func(o *encode.Options) {
			o.Encoder.Format = format
		})
		var values [][]byte
		e := r.encoder
		for _, deleted := range []bool{false, true} {
			s := sighting(secret("5", "cGxhbnRlZA==", "a"), reconcile.Watch)
			x := &reconcile.ObjectEvent{Type: event.Added, Key: s.Key, Object: reconcile.Object{UID: "u"}, Version: "5", Body: s.Body}
			if deleted {
				x.Type, s.Form = event.Deleted, reconcile.Ended
			}
			e.Prepare(r.id, s, nil, false)
			record, _ := e.Encode(&reconcile.Item{Collection: r.id, Run: 2, Incarnation: 1, Object: x}, "", start)
			values = append(values, bytes.Clone(record.Value))
		}
		for _, v := range values {
			if bytes.Contains(v, []byte("cGxhbnRlZA==")) || !bytes.Contains(v, []byte(`"pin":"redacted"`)) {
				t.Errorf("%s: %s", format, v)
			}
		}
		if r.counted[encode.Redacted] != 2 {
			t.Errorf("%d bodies count as redacted", r.counted[encode.Redacted])
		}
	}
}

// A body that cannot be redacted is not published: the event has no body, or goes to the dead letters unless it is a
// deletion.
func TestWithheld(t *testing.T) {
	odd := func(version string) string { // in this Secret, data has an unusual form
		return strings.Replace(secret(version, "1", "a"), `"data":{"pin":"1"}`, `"data":["planted"]`, 1)
	}
	for _, policy := range []encode.Oversize{encode.Truncate, encode.Fail, encode.ToDeadLetters} {
		t.Run(string(policy), func(t *testing.T) {
			r := newRig(t, event.Collection{Resource: "secrets"}, encode.Settings{}, func(o *encode.Options) {
				o.Oversize, o.DeadLetters = policy, template(t, "dead")
			})
			r.list("snapshot", "10", reconcile.Gone, secret("5", "1", "a"))
			r.commit()
			before := len(r.values)
			r.watch(odd("11"))
			dead := r.last().DeadLetter
			r.commit()
			r.deleted(odd("12"))
			ended := r.last()
			for _, e := range r.values[before:] {
				if e.BodyKnown || bytes.Contains(e.Data, []byte("planted")) {
					t.Errorf("published %s", e.Data)
				}
			}
			if policy == encode.ToDeadLetters {
				if dead == nil || dead.Reason != event.Unredacted || ended.ResourceVersion != "5" {
					t.Errorf("the dead letter is %+v, the deletion ends %s", dead, ended.ResourceVersion)
				}
			} else if dead != nil || ended.ResourceVersion != "11" {
				t.Errorf("the dead letter is %+v, the deletion ends %s", dead, ended.ResourceVersion)
			}
			if ended.Type != event.Deleted || ended.DeadLetter != nil || r.counted[encode.Withheld] == 0 {
				t.Errorf("%+v, %d withheld", ended, r.counted[encode.Withheld])
			}
		})
	}
}

// A filter decides by the object before redaction, by the state before, and by type and origin of the event.
func TestFilter(t *testing.T) {
	for name, x := range map[string]struct{ filter, want string }{
		"object":      {`object.data.x != "2"`, "present a@5, deleted a@5 left, added a@12"},
		"before":      {`before == null || before.data.x != "1"`, "present a@5, deleted a@5 left, added a@12"},
		"before, new": {`before == null || before.data.x != object.data.x`, "present a@5, modified a@11, modified a@12"},
		"type":        {`type == "added"`, "present a@5, deleted a@5 left, added a@12"},
		"origin":      {`origin != "snapshot"`, "added a@11, modified a@12"},
		"failing":     {`object.spec.replicas > 1`, "present a@5, modified a@11, modified a@12"},
	} {
		t.Run(name, func(t *testing.T) {
			var r *rig
			r = newRig(t, configMaps, encode.Settings{Filter: x.filter}, func(o *encode.Options) {
				o.Run = func(id string) (run, incarnation uint64) {
					c := r.core.Collection(id)
					return c.Run, c.Incarnation
				}
			})
			r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "1"))
			r.commit()
			r.watch(configMap("a", "ua", "11", "2"))
			r.watch(configMap("a", "ua", "12", "3"))
			if got := r.said(0); got != x.want {
				t.Errorf("%s, want %s", got, x.want)
			}
			if wrong := r.counted[encode.FilterErrors]; (wrong == 3) != (name == "failing") {
				t.Errorf("%d errors are counted", wrong)
			}
			if n := r.counted[encode.Filtered]; (n > 0) != strings.Contains(x.want, "left") && name != "origin" {
				t.Errorf("%d events are counted as filtered", n)
			}
		})
	}
}

// The log names the mistake in a filter once, and contains no redacted value.
func TestFilterErrors(t *testing.T) {
	for _, redact := range [][]shape.Rule{nil, {{Paths: []string{"data.*"}}}} {
		logged, logs := observer.New(zap.InfoLevel)
		r := newRig(t, configMaps, encode.Settings{Filter: `int(object.data.x) > 1`, Redact: redact}, func(o *encode.Options) { o.Log = zap.New(logged) })
		r.list("snapshot", "10", reconcile.Gone)
		for version := range 30 {
			r.watch(configMap("a", "ua", fmt.Sprint(20+version), "planted"))
		}
		if logs.Len() != 1 {
			t.Fatalf("%d messages are logged", logs.Len())
		}
		text := fmt.Sprint(logs.All()[0].ContextMap())
		if strings.Contains(text, "planted") || strings.Contains(text, "not shown") != (redact != nil) {
			t.Errorf("logged %s", text)
		}
	}
}

// A change of ignored fields is not published until the rules or other fields change.
func TestIgnore(t *testing.T) {
	s := encode.Settings{Ignore: []string{"data.x"}}
	r := newRig(t, configMaps, s, nil)
	r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "1"))
	r.watch(configMap("a", "ua", "11", "2"))
	r.commit()
	r.restart()
	r.watch(configMap("a", "ua", "12", "3"))
	r.watch(strings.Replace(configMap("a", "ua", "13", "3"), `"data"`, `"immutable":true,"data"`, 1))
	r.watch(strings.Replace(configMap("a", "ua", "14", "4"), `"data"`, `"immutable":true,"data"`, 1))
	r.commit()
	s.Ignore = []string{"data.y"}
	r.configure(s)
	r.list("", "20", reconcile.Gone, strings.Replace(configMap("a", "ua", "14", "4"), `"data"`, `"immutable":true,"data"`, 1))
	if got, want := r.said(0), "present a@5, modified a@13, modified a@14"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if r.counted[encode.Ignored] != 3 {
		t.Errorf("%d changes are counted as ignored", r.counted[encode.Ignored])
	}
}

// metadata.managedFields is often half of an object. It is published only where this is configured.
func TestManagedFields(t *testing.T) {
	of := func(version, manager string) string {
		return strings.Replace(configMap("a", "ua", version, manager), `"metadata":{`, `"metadata":{"managedFields":[{"manager":"`+manager+`"}],`, 1)
	}
	for _, keep := range []bool{false, true} {
		r := newRig(t, configMaps, encode.Settings{Before: true, Patch: true, ChangedBy: true}, func(o *encode.Options) { o.KeepManagedFields = keep })
		r.list("snapshot", "10", reconcile.Gone, of("5", "one"))
		r.commit()
		r.watch(of("11", "two"))
		r.deleted(of("12", "three"))
		if got := r.said(0); got != "present a@5, modified a@11, deleted a@11" {
			t.Fatalf("%s", got)
		}
		for _, e := range r.values {
			if e.Type.OfCollection() {
				continue
			}
			for what, text := range map[string][]byte{"object": e.Object, "before": e.Before, "patch": e.Patch} {
				if len(text) > 0 && bytes.Contains(text, []byte("managedFields")) != keep {
					t.Errorf("keep is %t, and the %s of %s is %s", keep, what, e.Type, text)
				}
			}
		}
		r.differences()
	}
}
