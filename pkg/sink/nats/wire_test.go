package nats

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/event"
)

func TestStateRoundTrip(t *testing.T) {
	t.Parallel()
	kv := rapid.Custom(func(t *rapid.T) event.KV {
		k := event.KV{Key: rapid.SliceOf(rapid.Byte()).Draw(t, "key")}
		if rapid.Bool().Draw(t, "set") {
			k.Value = append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "value")...)
		}
		return k
	})
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(kv, 1, -1).Draw(t, "state")
		got, err := decodeState(string(appendState(nil, want)))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("got %d changes, want %d", len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i].Key, want[i].Key) || !bytes.Equal(got[i].Value, want[i].Value) || (got[i].Value == nil) != (want[i].Value == nil) {
				t.Fatalf("change %d: got %v, want %v", i, got[i], want[i])
			}
		}
	})
}

// Anybody may have written the bytes on the bus, so parsing them must not panic.
func TestStateOfAnyBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(
			rapid.String(),
			rapid.StringOf(rapid.RuneFrom([]rune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))),
		).Draw(t, "header")
		state, err := decodeState(s)
		if err == nil && len(state) > 0 {
			if _, err := decodeState(string(appendState(nil, state))); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestMark(t *testing.T) {
	t.Parallel()
	want := mark{created: 1767355200123456789, seq: 42, term: "7.abc"}
	got, err := decodeMark(want.encode())
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"", "1", "2 1 2 3.x", "1 x 2 3.x", "partition=3 offset=7"} {
		if _, err := decodeMark([]byte(bad)); err == nil {
			t.Errorf("%q was taken for a mark", bad)
		}
	}
}

// The limit must hold for the bytes that are really sent; otherwise the server closes the connection.
func TestHeaderSizeIsNotBelowTheWire(t *testing.T) {
	t.Parallel()
	r := event.Record{ID: "x", Route: subject, Value: []byte("{}"), Attributes: []event.Attribute{{Name: "name", Value: "ü"}}, State: []event.KV{{Key: []byte("k")}}}
	m := &nats.Msg{Header: nats.Header{}}
	new(appender).encode(m, &r, "1.abc")
	bound := headerSize(m.Header)
	m.Header[headerExpected] = []string{"18446744073709551615"}
	m.Header[headerPlace] = []string{"18446744073709551615.18446744073709551615"}
	m.Header[headerBatch] = []string{strings.Repeat("x", 64)}
	m.Header[headerBatchSequence] = []string{"1000"}
	m.Header[headerBatchCommit] = []string{"1"}
	if real := (&nats.Msg{Header: m.Header}).Size(); real != bound {
		t.Errorf("headers take %d bytes, the bound is %d", real, bound)
	}
	m.Header[headerMsgID] = []string{strings.Repeat("x", 64)}
	for range 4 { // what atMost adds for all records is not what makes it large enough
		r.ID, r.State[0].Value = r.ID+strings.Repeat("ü", 500), append(r.State[0].Value, make([]byte, 4000)...)
		r.Attributes[0].Value += strings.Repeat("\n", 500)
		r.Headers = append(r.Headers, event.Attribute{Name: fmt.Sprintf("own-%d", len(r.Headers)), Value: strings.Repeat("ß", 500)})
		new(appender).encode(m, &r, "18446744073709551615."+strings.Repeat("x", 22))
		if real := headerSize(m.Header); real > atMost(&r) {
			t.Errorf("headers take %d bytes, at most %d were expected", real, atMost(&r))
		}
	}
}

func TestCovers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"k8s.>", "k8s.prod.core", true},
		{"k8s.>", "k8s.prod.>", true},
		{"k8s.prod.>", "k8s.>", false},
		{"k8s.>", "k8s", false},
		{"k8s.*", "k8s.prod", true},
		{"k8s.*", "k8s.>", false},
		{"k8s.*.x", "k8s.prod.x", true},
		{"k8s.*.x", "k8s.prod.y", false},
		{"k8s.prod", "k8s.prod.x", false},
		{"k8s.prod", "k8s.prod", true},
		{"k8s.production.>", "k8s.prod.x", false},
		{">", "anything", true},
	} {
		if got := covers(c.pattern, c.subject); got != c.want {
			t.Errorf("covers(%q, %q) is %v", c.pattern, c.subject, got)
		}
	}
}

func TestSubjectRoot(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		defaultSubject:                 "k8s.eu_1.>",
		"audit.{group}.{name}":         "audit.>",
		"audit.pods-{namespace}.x":     "audit.>",
		"{cluster}.{name}":             "eu_1.>",
		"a.{cluster}-x.{name}":         "a.eu_1-x.>",
		"audit.pods":                   "audit.pods",
		"audit.{cluster}":              "audit.eu_1",
		"k8s.{cluster}.all.{resource}": "k8s.eu_1.all.>",
	} {
		if got := subjectRoot(template, "eu.1"); got != want {
			t.Errorf("%q is rooted at %q, want %q", template, got, want)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	ok := func(change func(*Config)) Config {
		c := Config{URL: "nats://nats:4222"}
		if change != nil {
			change(&c)
		}
		return c
	}
	embedded := func(change func(*Config)) Config {
		c := Config{Embedded: &Embedded{Dir: "/var/lib/nats"}}
		if change != nil {
			change(&c)
		}
		return c
	}
	for _, c := range []struct {
		name   string
		config Config
		want   string // of the error; "" none
	}{
		{"url", ok(nil), ""},
		{"several urls", ok(func(c *Config) { c.URL = "nats://a:4222, tls://b:4222" }), ""},
		{"embedded", embedded(nil), ""},
		{"embedded with readers", embedded(func(c *Config) { c.Auth = Auth{Username: "u", Password: "p"} }), ""},
		{"nothing", Config{}, "url: missing"},
		{"both", embedded(func(c *Config) { c.URL = "nats://a" }), "embedded: set beside url"},
		{"scheme", ok(func(c *Config) { c.URL = "http://nats:4222" }), `url: "http://nats:4222"`},
		{"no scheme", ok(func(c *Config) { c.URL = "nats:4222" }), "url:"},
		{"no host", ok(func(c *Config) { c.URL = "nats://" }), "has no host"},
		{"credentials twice", ok(func(c *Config) { c.URL = "nats://u:s3cret@nats"; c.Auth.Token = "t" }), "keep one"},
		{"secret in a broken url", ok(func(c *Config) { c.URL = "nats://u:s3cret@na ts" }), "url: does not parse"},
		{"listen", embedded(func(c *Config) { c.Embedded.Listen = "4222" }), `embedded.listen: "4222"`},
		{"listen port", embedded(func(c *Config) { c.Embedded.Listen = ":99999" }), "embedded.listen"},
		{"no dir", Config{Embedded: &Embedded{}}, "embedded.dir: missing"},
		{"embedded token", embedded(func(c *Config) { c.Auth.Token = "t" }), "auth: an embedded server"},
		{"embedded tls", embedded(func(c *Config) { c.TLS.CA = "ca.pem" }), "an embedded one has embedded.tls"},
		{"embedded replicas", embedded(func(c *Config) { c.Stream.Replicas = 3 }), "stream.replicas: 3"},
		{"at-most-once with a stream", ok(func(c *Config) { c.Delivery = "at-most-once"; c.Stream.Name = "X" }), "stream: at-most-once has no stream"},
		{"delivery", ok(func(c *Config) { c.Delivery = "often" }), `delivery: "often" is not known`},
		{"empty token in subject", ok(func(c *Config) { c.Subject = "k8s..{name}" }), "empty token"},
		{"wildcard in subject", ok(func(c *Config) { c.Subject = "k8s.*.{name}" }), "wildcard"},
		{"subject without a root", ok(func(c *Config) { c.Subject = "{namespace}.{name}" }), "a token of its own"},
		{"reserved subject", ok(func(c *Config) { c.Subject = "$JS.{name}" }), "a token of its own"},
		{"the terms' subject", ok(func(c *Config) { c.Subject = "kubebridge.{name}" }), "a token of its own"},
		{"stream name", ok(func(c *Config) { c.Stream.Name = "a.b" }), `stream.name: "a.b"`},
		{"replicas", ok(func(c *Config) { c.Stream.Replicas = 7 }), "stream.replicas: 7"},
		{"max age", ok(func(c *Config) { c.Stream.MaxAge = -1 }), "stream.maxAge"},
		{"max bytes", ok(func(c *Config) { c.Stream.MaxBytes = -1 }), "stream.maxBytes"},
		{"two ways", ok(func(c *Config) { c.Auth = Auth{Token: "t", Creds: "f"} }), "auth: more than one"},
		{"two nkeys", ok(func(c *Config) { c.Auth = Auth{NKey: "f", Creds: "g"} }), "auth: more than one"},
		{"password twice", ok(func(c *Config) { c.Auth = Auth{Username: "u", Password: "s3cret", PasswordFile: "f"} }), "keep one"},
		{"token twice", ok(func(c *Config) { c.Auth = Auth{Token: "s3cret", TokenFile: "f"} }), "keep one"},
		{"half a certificate", ok(func(c *Config) { c.TLS.Cert = "c.pem" }), "tls: cert and key"},
		{"embedded: half a certificate", embedded(func(c *Config) { c.Embedded.TLS = &ServerTLS{Key: "k.pem"} }), "embedded.tls: cert and key"},
		{"embedded: limits", embedded(func(c *Config) { c.Embedded.MaxBytes = -1 }), "embedded.maxBytes"},
		{"leaf without a host", embedded(func(c *Config) { c.Embedded.Leaf = &Leaf{URL: "hub"} }), "embedded.leaf.url"},
		{"secret in a broken leaf url", embedded(func(c *Config) { c.Embedded.Leaf = &Leaf{URL: "nats-leaf://u:s3cret@hu b"} }), "embedded.leaf.url"},
		{"no password", ok(func(c *Config) { c.Auth.Username = "u" }), "auth: username and password"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.config.Complete()
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if got.Subject != defaultSubject || got.Delivery != exactlyOnce || !*got.Stream.Create || got.Stream.Replicas != 1 {
					t.Errorf("defaults are missing: %+v", got)
				}
				again, err := got.Complete()
				if err != nil || cmp.Diff(got, again) != "" {
					t.Errorf("completing again changed it: %+v, %v", again, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want an error with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %q shows a secret", err)
			}
		})
	}
}

func TestMissingFilesAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	for field, c := range map[string]Config{
		"auth.creds": {URL: "nats://a", Auth: Auth{Creds: "/nonexistent/a.creds"}},
		"tls.ca":     {URL: "tls://a", TLS: TLS{CA: "/nonexistent/ca.pem"}},
	} {
		if _, err := New(Options{Config: c, Identity: testIdentity}); err == nil || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "/nonexistent/") {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

// If the headers are the only place of the attributes, none may be left out to save space: the event would not say to which
// object it belongs.
func TestFitKeepsWhatTheValueDoesNotHave(t *testing.T) {
	t.Parallel()
	for format, kept := range map[event.Format]bool{event.Structured: false, event.Binary: true, event.Plain: true} {
		r := event.Record{
			ID: "x", Route: subject, Value: []byte("{}"), Format: format, State: []event.KV{{Key: []byte("k")}},
			Attributes: []event.Attribute{{Name: "id", Value: "x"}, {Name: "collection", Value: strings.Repeat("c", maxHeader)}},
		}
		m := &nats.Msg{Header: nats.Header{}}
		new(appender).encode(m, &r, "1.abc")
		size, cut := fit(m)
		if _, there := m.Header["ce-collection"]; !cut || there != kept || (size > maxHeader) != kept {
			t.Errorf("%s: %d bytes (cut: %t), the attribute is there: %t", format, size, cut, there)
		}
		if m.Header.Get(headerState) != stateOmitted {
			t.Errorf("%s: the state is %q", format, m.Header.Get(headerState))
		}
	}
}

// FuzzState: the parsed checkpoint state of a header is the one that was written, or there is an error. Every client that may
// publish to a stream can write such a header.
func FuzzState(f *testing.F) {
	f.Add(string(appendState(nil, []event.KV{{Key: []byte("a"), Value: []byte{}}, {Key: []byte("b")}})), mark{1, 2, "t"}.encode())
	f.Add("//8B", []byte("1 -1 2 t"))
	f.Fuzz(func(t *testing.T, text string, m []byte) {
		if state, err := decodeState(text); err == nil {
			again, err := decodeState(string(appendState(nil, state)))
			if diff := cmp.Diff(state, again); err != nil || diff != "" {
				t.Fatalf("%q: %v (-first +again):\n%s", text, err, diff)
			}
		} else if state != nil {
			t.Fatalf("%q: %v and %v", text, state, err)
		}
		if got, err := decodeMark(m); err == nil {
			if again, err := decodeMark(got.encode()); err != nil || again != got {
				t.Fatalf("%q: %+v came back as %+v, %v", m, got, again, err)
			}
		}
	})
}
