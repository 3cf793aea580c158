package nats

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// checked runs Check and compares each line of its output with the words expected in that line.
func checked(t *testing.T, c Config, weak, bad []string, checkpoint bool) {
	t.Helper()
	warnings, err := Check(t.Context(), Options{Config: c, Identity: testIdentity}, checkpoint)
	var errs []string
	if err != nil {
		errs = strings.Split(err.Error(), "\n")
	}
	for _, side := range []struct {
		name      string
		got, want []string
	}{{"warnings", warnings, weak}, {"errors", errs, bad}} {
		if len(side.got) != len(side.want) {
			t.Errorf("%d %s, want %d:\n%s", len(side.got), side.name, len(side.want), strings.Join(side.got, "\n"))
			continue
		}
		for i, words := range side.want {
			for word := range strings.SplitSeq(words, "|") {
				if !strings.Contains(side.got[i], word) {
					t.Errorf("%q does not say %q", side.got[i], word)
				}
			}
		}
	}
}

// Each mismatch of a stream is reported in one line, and the check changes nothing.
func TestCheckStream(t *testing.T) {
	t.Parallel()
	none := []string(nil)
	stream := jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.test.>", "kubebridge.test.bridge.live.term"}, AllowAtomicPublish: true}
	for name, c := range map[string]struct {
		stream    *jetstream.StreamConfig
		change    func(*jetstream.StreamConfig)
		config    Config
		weak, bad []string
	}{
		"to be created":   {nil, nil, Config{}, none, none},
		"not created":     {nil, nil, Config{Stream: Stream{Create: new(false)}}, none, []string{`stream "K8S_test" does not exist|create it`}},
		"subject taken":   {&stream, func(c *jetstream.StreamConfig) { c.Name = "OTHER" }, Config{}, none, []string{`"OTHER" takes k8s.test.>`, `"OTHER" takes kubebridge.test`}},
		"as it should be": {&stream, nil, Config{}, none, none},
		"several mistakes": {&stream, func(c *jetstream.StreamConfig) {
			c.Retention, c.MaxMsgsPerSubject, c.Storage = jetstream.InterestPolicy, 1, jetstream.MemoryStorage
		}, Config{}, []string{"storage is memory"}, []string{"retention is interest", "max_msgs_per_subject"}},
		"drift": {
			&stream, nil,
			Config{Stream: Stream{Replicas: 3, MaxBytes: 5}},
			[]string{"num_replicas is 1, want 3", "max_bytes is -1, want 5"},
			none,
		},
		"another pipeline's": {&stream, func(c *jetstream.StreamConfig) {
			c.Metadata = owner(testIdentity, nil, 0)
			c.Metadata[metaClusterUID] = "other"
		}, Config{}, none, []string{`another bridge, cluster or sink|"other"|"uid-1"`}},
		"subjects, not to be changed": {
			&stream, func(c *jetstream.StreamConfig) { c.Subjects = []string{"k8s.test.>"} },
			Config{Stream: Stream{Create: new(false)}},
			none,
			[]string{"set its subjects to"},
		},
		"shared, but a pipeline's alone": {
			&stream, func(c *jetstream.StreamConfig) { c.Metadata = owner(testIdentity, nil, 0) },
			Config{Delivery: atLeastOnce},
			none,
			[]string{`belongs to bridge "bridge"`},
		},
		"no stream": {nil, nil, Config{Delivery: atMostOnce}, none, none},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t, nil)
			js := b.client(t)
			names := 0
			if c.stream != nil {
				s := *c.stream
				if c.change != nil {
					c.change(&s)
				}
				if _, err := js.CreateStream(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				names = 1
			}
			c.config.URL = b.url()
			checked(t, c.config, c.weak, c.bad, false)
			info, err := js.AccountInfo(t.Context())
			if err != nil || info.Streams != names {
				t.Errorf("there are %d streams afterwards, want %d (%v)", info.Streams, names, err)
			}
		})
	}
}

// A running bridge continues when somebody validates its configuration.
func TestCheckFencesNobody(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	c := Config{URL: b.url()}
	s, err := New(Options{Config: c, Identity: testIdentity})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	before := s.(*Sink).opened
	store := mustOpenStore(t, StoreOptions{Sink: s.(*Sink)})
	commit(t, store, kv("e/a", "1"))
	checked(t, c, nil, nil, true)
	handle, err := b.client(t).Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	if last := handle.CachedInfo().State.LastSeq; last != before {
		t.Errorf("the stream ends at %d, want %d", last, before)
	}
	commit(t, store, kv("e/a", "2"))
}

// A bucket that would lose the checkpoint is found before the bridge starts.
func TestCheckBucket(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	commit(t, mustOpenStore(t, options(b.url())), kv("e/a", "1"))
	stream, _ := bucketStream(BucketName(testIdentity))
	reconfigure(t, b.client(t), stream, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	checked(t, Config{URL: b.url(), Stream: Stream{Replicas: 3}},
		[]string{stream + "|num_replicas is 1, want 3"}, []string{BucketName(testIdentity) + "|after 1h0m0s, want never"}, true)
}

func TestCheckServer(t *testing.T) {
	t.Parallel()
	t.Run("unreachable", func(t *testing.T) {
		checked(t, Config{URL: "nats://127.0.0.1:1"}, nil, []string{"127.0.0.1:1|no servers"}, true)
	})
	t.Run("payload, credentials, permissions", func(t *testing.T) {
		b := startBus(t, func(o *server.Options) {
			o.MaxPayload = 1000
			o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: []string{"$JS.API.>", "$SYS.REQ.USER.INFO", "k8s.test.core.>"}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}}}
		})
		checked(t, Config{URL: b.url(), Auth: Auth{Username: "u", Password: "wrong"}}, nil, []string{"nats.auth"}, true)
		checked(t, Config{URL: b.url(), Auth: Auth{Username: "u", Password: "p"}}, []string{"1000 bytes (max_payload)"},
			[]string{`publish to "k8s.test.>"|events`, `publish to "kubebridge.test.bridge.live.term"`, `publish to "$KV.kubebridge_bridge_uid-1_live.>"|checkpoint`}, true)
	})
}

// Servers behind leaf nodes answer the question for the user's permissions, too. Only the answer of the connected one counts.
func TestCheckAsksTheConnectedServer(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	other := b.client(t).Conn()
	if _, err := other.Subscribe(userInfo, func(m *nats.Msg) { // on this server, this answer comes first
		must(t, m.Respond([]byte(`{"server":{"id":"OTHER"},"data":{"permissions":{"publish":{"deny":["k8s.>"]}}}}`)))
	}); err != nil {
		t.Fatal(err)
	}
	must(t, other.Flush())
	for range 20 {
		checked(t, Config{URL: b.url()}, nil, nil, true)
	}
}

// A stream that changes subjects: exactly-once refuses it if the bridge would not find its own messages, otherwise a warning names
// who finds no events, and readers refuse it.
func TestSubjectTransform(t *testing.T) {
	t.Parallel()
	for source, refused := range map[string]bool{">": true, "kubebridge.>": true, "k8s.>": false} {
		t.Run(source, func(t *testing.T) {
			b := startBus(t, nil)
			_, err := b.client(t).CreateStream(t.Context(), jetstream.StreamConfig{
				Name: streamName, Subjects: []string{"k8s.test.>", "kubebridge.test.>"}, AllowAtomicPublish: true,
				SubjectTransform: &jetstream.SubjectTransformConfig{Source: source, Destination: "moved." + source},
			})
			must(t, err)
			s := newSink(t, Config{URL: b.url()})
			if refused {
				wantRefused(t, s.Open(t.Context(), nil), "subject_transform", "kubebridge.test.bridge.live.term")
				return
			}
			checked(t, Config{URL: b.url()}, []string{"subject_transform|bridge serve"}, nil, false)
			mustOpen(t, s, nil)
			mustWrite(t, s, records(1, 2))
			next := newSink(t, Config{URL: b.url()})
			mustOpen(t, next, nil)
			mustWrite(t, next, records(2, 1))
			_, err = NewReader(t.Context(), ReaderOptions{Config: Config{URL: b.url()}, Identity: testIdentity})
			wantPlain(t, err, "subject_transform", `"moved.k8s.>"`)
		})
	}
}

// An account that maps subjects elsewhere is named as a possible cause.
func TestMappedSubjects(t *testing.T) {
	t.Parallel()
	for source, delivery := range map[string]string{"kubebridge.>": exactlyOnce, "k8s.>": atLeastOnce} {
		b := startBus(t, nil)
		s := newAny(t, testIdentity, Config{URL: b.url(), Delivery: delivery})
		must(t, b.srv.GlobalAccount().AddMapping(source, "elsewhere."+source))
		err := s.Open(t.Context(), nil)
		if err == nil {
			_, err = s.Write(t.Context(), records(1, 1))
		}
		wantPlain(t, err, "mappings")
	}
}
