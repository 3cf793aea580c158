package nats

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func embedded(dir string) Config {
	return Config{Embedded: &Embedded{Dir: dir, Listen: "127.0.0.1:0"}}
}

func TestEmbeddedKeepsItsDataOverARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "as needed")
	s := newSink(t, embedded(dir))
	if url := s.ClientURL(); url != "" {
		t.Errorf("ClientURL before Open is %q", url)
	}
	mustOpen(t, s, nil)
	mark := mustWrite(t, s, records(1, 3))
	mustWrite(t, s, records(2, 2))
	wantValues(t, read(t, client(t, s.ClientURL())), "1/0 1/1 1/2 2/0 2/1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = newSink(t, embedded(dir))
	mustOpen(t, s, mark)
	if got, err := tailOf(t, s, mark); err != nil || got != "2/0 2/1" {
		t.Errorf("Tail: %q, %v", got, err)
	}
	mustWrite(t, s, records(3, 1))
	wantValues(t, read(t, client(t, s.ClientURL())), "1/0 1/1 1/2 2/0 2/1 3/0")
}

// kill -9 also ends the embedded server, so acknowledged data must already be with the operating system. The files at the
// moment of the test are what a kill leaves behind.
func TestEmbeddedSurvivesAKill(t *testing.T) {
	t.Parallel()
	dir, left := t.TempDir(), filepath.Join(t.TempDir(), "left")
	s := newSink(t, embedded(dir))
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 1))
	mark := mustWrite(t, s, records(2, 500))
	copyDir(t, left, dir)

	next := newSink(t, embedded(left))
	mustOpen(t, next, mark)
	if got, err := tailOf(t, next, mark); err != nil || got != "" {
		t.Errorf("Tail from the end: %q, %v", got, err)
	}
	if n := len(read(t, client(t, next.ClientURL()))); n != 501 {
		t.Errorf("after the kill there are %d records, want 501", n)
	}
}

// The embedded server's limit is larger than the usual megabyte, so that larger records fit.
func TestEmbeddedTakesLargeRecords(t *testing.T) {
	t.Parallel()
	s := newSink(t, embedded(t.TempDir()))
	mustOpen(t, s, nil)
	b := records(1, 3)
	b.Records[1].Value = []byte(`"` + strings.Repeat("x", 7<<20) + `"`)
	mustWrite(t, s, b)
	if msgs := read(t, client(t, s.ClientURL())); len(msgs) != 3 || len(msgs[1].Value) != 7<<20+2 {
		t.Errorf("the large record did not come through: %d records", len(msgs))
	}
}

func TestEmbeddedReadersOnlyRead(t *testing.T) {
	t.Parallel()
	s := newSink(t, embedded(t.TempDir()))
	mustOpen(t, s, nil)
	denied := make(chan error, 8)
	js := client(t, s.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	live, err := js.Conn().SubscribeSync("k8s.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := js.Conn().Publish(subject, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-denied:
		wantText(t, err, subject)
	case <-time.After(2 * time.Minute):
		t.Errorf("publishing to %q was not denied", subject)
	}
	for _, request := range []string{
		"STREAM.DELETE." + streamName, "STREAM.PURGE." + streamName, "STREAM.MSG.DELETE." + streamName, "CONSUMER.DELETE." + streamName + ".x",
		"CONSUMER.NAMES." + streamName, "CONSUMER.LIST." + streamName, "STREAM.INFO.KV_" + BucketName(testIdentity),
	} {
		if _, err := js.Conn().Request(api+request, nil, 2*time.Minute); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: %v, want nobody to answer", request, err)
		}
	}
	mustWrite(t, s, records(1, 2))
	for range 2 {
		if _, err := live.NextMsg(2 * time.Minute); err != nil {
			t.Errorf("a plain subscriber: %v", err)
		}
	}
	consumer, err := js.OrderedConsumer(t.Context(), streamName, jetstream.OrderedConsumerConfig{FilterSubjects: []string{"k8s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := consumer.Next(); err != nil {
			t.Errorf("an ordered consumer: %v", err)
		}
	}
	older, err := js.Conn().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := older.SubscribeSync("k8s.>", nats.OrderedConsumer())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := pushed.NextMsg(2 * time.Minute); err != nil {
			t.Errorf("a push consumer of an older client: %v", err)
		}
	}
	legacy, err := js.Conn().JetStream(nats.UseLegacyDurableConsumers())
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := legacy.PullSubscribe("k8s.>", "durable", nats.BindStream(streamName))
	if err != nil {
		t.Fatal(err)
	}
	if all, err := pulled.Fetch(2); len(all) != 2 {
		t.Errorf("a durable consumer of an older client has %d messages: %v", len(all), err)
	}
	unnamed, err := js.Conn().Request(api+"CONSUMER.CREATE."+streamName, fmt.Appendf(nil, `{"stream_name": %q, "config": {"ack_policy": "none"}}`, streamName), 2*time.Minute)
	if err != nil || !strings.Contains(string(unnamed.Data), `"created"`) {
		t.Errorf("a consumer without a name: %v, %s", err, unnamed.Data)
	}
}

func TestEmbeddedPassword(t *testing.T) {
	t.Parallel()
	c := embedded(t.TempDir())
	c.Auth = Auth{Username: "viewer", Password: "s3cret"}
	s := newSink(t, c)
	mustOpen(t, s, nil)
	if nc, err := nats.Connect(s.ClientURL()); err == nil {
		nc.Close()
		t.Error("a subscriber without credentials was let in")
	}
	mustWrite(t, s, records(1, 1))
	wantValues(t, read(t, client(t, s.ClientURL(), nats.UserInfo("viewer", "s3cret"))), "1/0")
}

func TestEmbeddedCannotStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	linked, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	if err := os.Symlink(elsewhere, filepath.Join(linked, "kubebridge.lock")); err != nil {
		t.Fatal(err)
	}
	inUse := t.TempDir()
	other := newSink(t, embedded(inUse))
	mustOpen(t, other, nil)

	for _, c := range []struct {
		name string
		e    Embedded
		want []string
	}{
		{"port in use", Embedded{Dir: t.TempDir(), Listen: taken.Addr().String()}, []string{taken.Addr().String(), "in use"}},
		{"no directory", Embedded{Dir: file, Listen: "127.0.0.1:0"}, []string{file, "not a directory"}},
		{"storage cannot be made", Embedded{Dir: broken, Listen: "127.0.0.1:0"}, []string{broken, "JetStream"}},
		{"lock planted by another user", Embedded{Dir: linked, Listen: "127.0.0.1:0"}, []string{linked, "link of another user"}},
		{"directory in use", Embedded{Dir: inUse, Listen: "127.0.0.1:0"}, []string{inUse, "another process"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.e.Dir == linked {
				if os.Geteuid() != 0 {
					t.Log("only root can make links of other users")
					return
				}
				if err := os.Lchown(filepath.Join(linked, "kubebridge.lock"), 12345, 12345); err != nil {
					t.Fatal(err)
				}
			}
			s := newSink(t, Config{Embedded: &c.e})
			wantPlain(t, s.Open(t.Context(), nil), c.want...)
			if c.name == "port in use" {
				taken.Close()
				mustOpen(t, s, nil) // recovers
				mustWrite(t, s, records(1, 1))
			}
		})
	}
	mustWrite(t, other, records(1, 1))
	if _, err := os.Lstat(elsewhere); err == nil {
		t.Error("a lock was made where a link of another user leads")
	}
}
