package nats

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
)

func newShared(t *testing.T, c Config) *Shared {
	t.Helper()
	c.Delivery = atLeastOnce
	return newAny(t, testIdentity, c).(*Shared)
}

func TestSharedSuite(t *testing.T) {
	sinktest.RunFormats(t, func(t *testing.T) *sinktest.Harness {
		b := startBus(t, nil)
		h := harness(t, b)
		h.ExactlyOnce = false
		h.New = func(t *testing.T) sink.Sink { return newShared(t, Config{URL: b.url()}) }
		return h
	})
}

// spread makes a batch whose records are spread over n subjects.
func spread(seq uint64, records, n int) *event.Batch {
	b := &event.Batch{Seq: seq}
	for i := range records {
		id := fmt.Sprintf("%d/%d", seq, i)
		b.Records = append(b.Records, event.Record{ID: id, Route: fmt.Sprintf("k8s.test.core.pods.default.p%d", i%n), Value: []byte(`"` + id + `"`)})
	}
	return b
}

// perSubject fails the test unless the values of each subject have the order in which they were written. It returns how many of
// them are there twice.
func perSubject(t *testing.T, msgs []sinktest.Message, want ...*event.Batch) (repeated int) {
	t.Helper()
	got, left := map[string][]string{}, map[string][]string{}
	for _, m := range msgs {
		v := strings.Trim(string(m.Value), `"`)
		if have := got[m.Route]; len(have) > 0 && have[len(have)-1] == v {
			repeated++
			continue
		}
		got[m.Route] = append(got[m.Route], v)
	}
	for _, b := range want {
		for _, r := range b.Records {
			left[r.Route] = append(left[r.Route], r.ID)
		}
	}
	for route, ids := range left {
		if !slices.Equal(got[route], ids) {
			t.Errorf("%s holds %q, want %q", route, got[route], ids)
		}
	}
	return repeated
}

// A message that is sent again must not be stored twice, nor behind its successors.
func TestSharedAcknowledgementsLost(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	p := startProxy(t, strings.TrimPrefix(b.url(), "nats://"))
	s := newShared(t, Config{URL: "nats://" + p.Addr().String()})
	mustOpen(t, s, nil)
	var all []*event.Batch
	for seq := range uint64(6) {
		batch := spread(seq+1, 500, 60)
		p.deaf.Store(true)
		if _, err := retry(t, s, batch); err != nil {
			t.Fatal(err)
		}
		all = append(all, batch)
	}
	if n := perSubject(t, b.read(t), all...); n > 0 {
		t.Errorf("%d messages are there twice", n)
	}
	_ = s.Close()
}

// An event about a collection is stored behind everything that was sent before it and before everything that was sent after it,
// on all subjects.
func TestSharedCollectionEventsAreBarriers(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newShared(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	batch := spread(1, 400, 100)
	for i := 50; i < 400; i += 100 {
		batch.Records[i].Route, batch.Records[i].Broadcast = "k8s.test.core.pods._collection.gap", true
	}
	mustWrite(t, s, batch)
	for i, m := range b.read(t) {
		want := batch.Records[i]
		if isGap := strings.Contains(m.Route, "_collection"); isGap != want.Broadcast || isGap && string(m.Value) != string(want.Value) {
			t.Fatalf("message %d is %s on %s, want a collection event: %v", i, m.Value, m.Route, want.Broadcast)
		}
	}
}

// When a restarted bridge sends an object's event again, it is the same event, whatever the object's body is by then. A
// repeated gap and a heartbeat are new events.
func TestSharedRepeatsAreKnown(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	object := event.Record{ID: "uid:7:modified", Route: subject, Value: []byte(`"object"`)}
	gap := event.Record{ID: "pods:1:7:gap", Route: "k8s.test.core.pods._collection.gap", Value: []byte(`"gap"`), Broadcast: true}
	batch := func(seq uint64) *event.Batch {
		return &event.Batch{Seq: seq, Records: []event.Record{object, gap}}
	}
	s := newShared(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mark := mustWrite(t, s, records(1, 1))
	mustWrite(t, s, batch(2))
	mustWrite(t, s, batch(2)) // the pipeline retries: nothing new is stored
	mustWrite(t, s, records(3, 1))
	next := newShared(t, Config{URL: b.url()})
	mustOpen(t, next, mark)
	mustWrite(t, next, records(3, 2)) // the batches may be divided differently
	object.Value = []byte(`"repeated"`)
	mustWrite(t, next, batch(2))
	wantValues(t, b.read(t), "1/0 object gap 3/0 3/1 gap")
}

// The server drops no message because another one came from the same event: the
// consumers of the second would miss it, and the pipeline would count it as published.
// Whether the first was committed or is in doubt makes no difference.
func TestSharedDropsNoOtherMessage(t *testing.T) {
	t.Parallel()
	const elsewhere = "k8s.test.core.pods.other.web"
	one := event.Collection{Resource: "pods"}
	of := func(change func(*event.Event, *event.Record)) event.Record {
		e := &event.Event{Collection: &one, Type: event.Modified, UID: "uid", ResourceVersion: "7", Object: []byte("{}")}
		r := event.Record{ID: "uid:7:modified", Route: subject, Event: e}
		if change != nil {
			change(e, &r)
		}
		return r
	}
	dead := func(reason string) event.Record {
		return of(func(e *event.Event, r *event.Record) {
			e.DeadLetter, r.Route = &event.DeadLetter{Reason: reason}, deadSubject
		})
	}
	gap := func(route string) event.Record {
		return event.Record{ID: "pods:1:7:gap", Route: route, Broadcast: true}
	}
	truncated := of(func(e *event.Event, _ *event.Record) { e.Truncated = &event.Truncation{Size: 9} })
	for name, pair := range map[string][2]event.Record{
		"dead letter, then the event":  {dead(event.Oversize), of(nil)},
		"the event, then dead letter":  {of(nil), dead(event.Oversize)},
		"dead letters of two reasons":  {dead(event.Oversize), dead(event.Rejected)},
		"another subject":              {of(nil), of(func(_ *event.Event, r *event.Record) { r.Route = elsewhere })},
		"truncated, then whole":        {truncated, of(nil)},
		"whole, then truncated":        {of(nil), truncated},
		"without its body, then with":  {of(func(e *event.Event, _ *event.Record) { e.Object = nil }), of(nil)},
		"another format":               {of(nil), of(func(_ *event.Event, r *event.Record) { r.Format = event.Binary })},
		"a gap on two subjects":        {gap("k8s.test.core.pods._collection.gap"), gap("k8s.test.apps.pods._collection.gap")},
		"a gap twice":                  {gap("k8s.test.core.pods._collection.gap"), gap("k8s.test.core.pods._collection.gap")},
		"other collection, same parts": {within("a", "b/uid"), within("a/b", "uid")},
	} {
		pair[0].Value, pair[1].Value = []byte(`"first"`), []byte(`"second"`)
		for how, write := range map[string]func(*testing.T, *bus, Config){
			"one batch": func(t *testing.T, b *bus, c Config) {
				s := newShared(t, c)
				mustOpen(t, s, nil)
				mustWrite(t, s, &event.Batch{Seq: 1, Records: pair[:]})
			},
			"two batches": func(t *testing.T, b *bus, c Config) {
				s := newShared(t, c)
				mustOpen(t, s, nil)
				mustWrite(t, s, &event.Batch{Seq: 1, Records: pair[:1]})
				mustWrite(t, s, &event.Batch{Seq: 2, Records: pair[1:]})
			},
			"killed between": func(t *testing.T, b *bus, c Config) {
				s := newShared(t, c)
				mustOpen(t, s, nil)
				mustWrite(t, s, &event.Batch{Seq: 1, Records: pair[:1]})
				next := newShared(t, c)
				mustOpen(t, next, nil)
				mustWrite(t, next, &event.Batch{Seq: 1, Records: pair[1:]})
			},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				b := startBus(t, nil)
				subjects := []string{"k8s.test.>", deadRoot + ".>"}
				if _, err := b.client(t).CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: subjects}); err != nil {
					t.Fatal(err)
				}
				write(t, b, Config{URL: b.url(), DeadLetter: &DeadLetter{Subject: deadRoot}})
				wantAll(t, b, "first second")
			})
		}
	}
}

func within(collection, id string) event.Record {
	return event.Record{ID: id, Route: subject, Attributes: []event.Attribute{{Name: "collection", Value: collection}}}
}

// wantAll is wantValues for all subjects of the stream.
func wantAll(t *testing.T, b *bus, want string) {
	t.Helper()
	stream, err := b.client(t).Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for seq := range stream.CachedInfo().State.LastSeq {
		m, err := stream.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.Trim(string(m.Data), `"`))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("the stream holds %q, want %q", got, want)
	}
}

// An event that comes again after it was committed is not a repeat: the object, or its collection, has left and come back in
// the meantime.
func TestSharedEventComesBack(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	added := event.Record{ID: "uid:7:added", Route: subject, Value: []byte(`"added"`)}
	left := event.Record{ID: "uid:7:deleted", Route: subject, Value: []byte(`"left"`)}
	batch := func(seq uint64, all ...event.Record) *event.Batch { return &event.Batch{Seq: seq, Records: all} }
	s := newShared(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mustWrite(t, s, batch(1, added))
	mustWrite(t, s, batch(2, left, added))
	mark := mustWrite(t, s, batch(3, left))
	next := newShared(t, Config{URL: b.url()})
	mustOpen(t, next, mark)
	mustWrite(t, next, batch(1, added, left, added))
	wantValues(t, b.read(t), "added left added left added left added")
}

// Whatever fails, an event that comes back is stored once for each batch, in order.
func TestSharedEventsComeBackAcknowledgementsLost(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	p := startProxy(t, strings.TrimPrefix(b.url(), "nats://"))
	s := newShared(t, Config{URL: "nats://" + p.Addr().String()})
	mustOpen(t, s, nil)
	want := map[string][]string{}
	for seq := range uint64(5) {
		batch := spread(1, 300, 60)
		batch.Seq = seq + 1
		for i := range batch.Records {
			r := &batch.Records[i]
			r.Value = fmt.Appendf(nil, `"%d/%d"`, seq, i)
			want[r.Route] = append(want[r.Route], fmt.Sprintf("%d/%d", seq, i))
		}
		p.deaf.Store(true)
		if _, err := retry(t, s, batch); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string][]string{}
	for _, m := range b.read(t) {
		got[m.Route] = append(got[m.Route], strings.Trim(string(m.Value), `"`))
	}
	for route := range want {
		if !slices.Equal(got[route], want[route]) {
			t.Errorf("%s holds %q, want %q", route, got[route], want[route])
		}
	}
	_ = s.Close()
}

// Other programs write to the stream, too, and no writer fences another one.
func TestSharedWithOthers(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	js := b.client(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ALL", Subjects: []string{"k8s.>", "orders.>"}}); err != nil {
		t.Fatal(err)
	}
	s, other := newShared(t, Config{URL: b.url()}), newShared(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mustOpen(t, other, nil)
	for seq := range uint64(3) {
		mustWrite(t, s, records(seq+1, 2))
		if _, err := js.Publish(t.Context(), "orders.new", nil); err != nil {
			t.Fatal(err)
		}
	}
	mustWrite(t, other, records(9, 1))
	wantValues(t, b.read(t), "1/0 1/1 2/0 2/1 3/0 3/1 9/0")
	if s.name != "ALL" {
		t.Errorf("found stream %q, want the one that takes the subjects", s.name)
	}
}

func TestSharedStreamLost(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newShared(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	old := mustWrite(t, s, records(1, 2))
	b.deleteStream(t)
	_, err := retry(t, s, records(2, 2))
	wantReset(t, err, streamName, "created")
	mustWrite(t, s, records(3, 2))
	wantValues(t, b.read(t), "3/0 3/1")

	next := newShared(t, Config{URL: b.url()}) // it was away meanwhile
	mustOpen(t, next, old)
	_, err = next.Write(t.Context(), records(1, 1))
	wantReset(t, err, streamName, "created")
	mark := mustWrite(t, next, records(4, 1))
	again := newShared(t, Config{URL: b.url()})
	mustOpen(t, again, mark)
	mustWrite(t, again, records(5, 1))
	wantValues(t, b.read(t), "3/0 3/1 4/0 5/0")
}

// The server died within its sync interval and came back without the last batch.
func TestSharedStreamLostItsTail(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newShared(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 2))
	saved := b.save(t)
	if _, err := retry(t, s, records(2, 3)); err != nil {
		t.Fatal(err)
	}
	b.restore(t, saved)
	_, err := retry(t, s, records(3, 2))
	wantReset(t, err, "acknowledged")
	mustWrite(t, s, records(4, 1))

	mustWrite(t, s, records(5, 9))
	b.restore(t, saved)
	for until := time.Now().Add(time.Minute); !s.conn.nc.IsConnected(); time.Sleep(time.Millisecond) { // no write notices it
		if time.Now().After(until) {
			t.Fatal("it does not connect again")
		}
	}
	_, err = retry(t, s, records(6, 1))
	wantReset(t, err, "acknowledged")
	mustWrite(t, s, records(7, 1))
}

func TestSharedRefusedStreams(t *testing.T) {
	t.Parallel()
	subjects := []string{"k8s.test.>"}
	for _, c := range []struct {
		name   string
		config jetstream.StreamConfig
		want   []string
	}{
		{"work queue", jetstream.StreamConfig{Subjects: subjects, Retention: jetstream.WorkQueuePolicy}, []string{"workqueue", "want limits"}},
		{"interest", jetstream.StreamConfig{Subjects: subjects, Retention: jetstream.InterestPolicy}, []string{"interest"}},
		{"no acknowledgements", jetstream.StreamConfig{Subjects: subjects, NoAck: true}, []string{"no_ack"}},
		{"counters", jetstream.StreamConfig{Subjects: subjects, AllowMsgCounter: true}, []string{"allow_msg_counter"}},
		{"full subjects refuse", jetstream.StreamConfig{
			Subjects: subjects, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 1,
		}, []string{"discard_new_per_subject"}},
		{"a pipeline's own", jetstream.StreamConfig{Subjects: subjects, Metadata: map[string]string{metaBridge: "b2"}}, []string{`"b2"`, "would fence"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBus(t, nil)
			c.config.Name = streamName
			if _, err := b.client(t).CreateStream(t.Context(), c.config); err != nil {
				t.Fatal(err)
			}
			wantRefused(t, newShared(t, Config{URL: b.url()}).Open(t.Context(), nil), append(c.want, streamName)...)
		})
	}
}

// One route that is denied is named, and the pipeline goes on without it.
func TestSharedDeniedRoute(t *testing.T) {
	t.Parallel()
	const denied = "k8s.test.core.secrets.default.token"
	b := startBus(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "a"},
			{Username: "bridge", Password: "b", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{denied}}}},
		}
	})
	s := newShared(t, Config{URL: b.url(), Auth: Auth{Username: "bridge", Password: "b"}})
	mustOpen(t, s, nil)
	batch := spread(1, 20, 5)
	batch.Records[7].Route = denied
	_, err := retryRoute(t, s, batch)
	var route *sink.RouteError
	if !errors.As(err, &route) || route.Index != 7 || route.Route != denied {
		t.Fatalf("got %v, want a RouteError about record 7", err)
	}
	batch.Records = slices.Delete(batch.Records, 7, 8)
	mustWrite(t, s, batch)
	if n := perSubject(t, b.read(t, nats.UserInfo("admin", "a")), batch); n > 0 {
		t.Errorf("%d messages are there twice", n)
	}
}

// A stream that is full, or takes less than it did, holds the pipeline back or asks for a
// smaller record; it never loses one.
func TestSharedStreamTakesLess(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	s := newShared(t, Config{URL: b.url()})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 1))
	js := b.client(t)
	change := func(f func(*jetstream.StreamConfig)) {
		reconfigure(t, js, streamName, f)
	}
	change(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 2, jetstream.DiscardNew })
	_, err := s.Write(t.Context(), records(2, 3))
	wantPlain(t, err, streamName, "maximum messages exceeded")
	change(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.MaxMsgSize = -1, 2000 })
	if _, err := retry(t, s, records(2, 3)); err != nil {
		t.Fatal(err)
	}
	batch := records(3, 3)
	batch.Records[1].Value = []byte(strings.Repeat("x", 3000))
	_, err = s.Write(t.Context(), batch)
	var rec *sink.RecordError
	if !errors.As(err, &rec) || rec.Index != 1 || rec.Limit != 2000 {
		t.Fatalf("Write: %v, want a RecordError about record 1 and 2000 bytes", err)
	}
	batch.Records[1] = records(3, 2).Records[1]
	mustWrite(t, s, batch)
	wantValues(t, b.read(t), "1/0 2/0 2/1 2/2 3/0 3/1 3/2")
}
