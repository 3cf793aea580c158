package nats

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startLeaf starts a hub with JetStream in the domain hub, and a leaf node with JetStream in a domain of its own.
func startLeaf(t *testing.T, change func(*server.Options)) (hub, leaf *bus) {
	t.Helper()
	port := freePort(t)
	hub = startBus(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "hub", "hub"
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", port
	})
	leaf = startBus(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "leaf", "edge"
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats-leaf", Host: fmt.Sprintf("127.0.0.1:%d", port)}}}}
		if change != nil {
			change(o)
		}
	})
	wait(t, "the leaf node", func() bool { return hub.srv.NumLeafNodes() == 1 })
	return hub, leaf
}

// A bridge that connects to a leaf node keeps its stream and its checkpoint on the hub, with the permissions that are printed, and
// another bridge takes both over.
func TestDomain(t *testing.T) {
	t.Parallel()
	c := Config{Domain: "hub", InboxPrefix: "answers.bridge"}
	c.URL = "nats://x"
	g, err := c.Grants(testIdentity)
	must(t, err)
	list := func(grants []Grant) (subjects []string) {
		for _, one := range grants {
			subjects = append(subjects, one.Subject)
		}
		return subjects
	}
	hub, leaf := startLeaf(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "bridge", Password: "b", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: list(append(g.Publish, c.CheckpointGrants(testIdentity)...))},
			Subscribe: &server.SubjectPermission{Allow: list(g.Subscribe)},
		}}}
	})
	c.URL, c.Auth = leaf.url(), Auth{Username: "bridge", Password: "b"}
	checked(t, c, nil, nil, true)
	s := newSink(t, c)
	store := mustOpenStore(t, StoreOptions{Sink: s})
	mustOpen(t, s, nil)
	mark := mustWrite(t, s, records(1, 3))
	commit(t, store, kv("e/a", "1"), kv("e/b", "2"))
	must(t, store.Close())
	wantValues(t, hub.read(t), "1/0 1/1 1/2")
	next := newSink(t, c)
	mustOpen(t, next, mark)
	wantKeys(t, mustOpenStore(t, StoreOptions{Sink: next}), kv("e/a", "1"), kv("e/b", "2"))
	wantFenced(t, s, records(2, 1))
	mustWrite(t, next, records(2, 1))
	wantValues(t, hub.read(t), "1/0 1/1 1/2 2/0")
	r, err := NewReader(t.Context(), ReaderOptions{Config: c, Identity: testIdentity})
	must(t, err)
	defer r.Close()
	if p := r.Parts()[0]; p.End < 5 {
		t.Errorf("the reader sees the stream up to %d", p.End)
	}
	names := leaf.client(t, nats.UserInfo("bridge", "b"), nats.CustomInboxPrefix("answers.bridge")).Conn()
	if js, err := jetstream.NewWithDomain(names, "hub"); err != nil {
		t.Error(err)
	} else if _, err := js.Stream(t.Context(), streamName); err != nil {
		t.Errorf("the stream is not in the domain: %v", err)
	}
}

func TestHandshakeFirst(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "servers")
	b := startBus(t, func(o *server.Options) {
		demandTLS(t, o, ca, ca)
		o.TLSHandshakeFirst = true
	})
	dir := t.TempDir()
	c := TLS{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "c.crt"), Key: filepath.Join(dir, "c.key"), HandshakeFirst: true}
	write(t, c.CA, ca.pem)
	ca.issue(t, "bridge", c.Cert, c.Key)
	s := newSink(t, Config{URL: strings.Replace(b.url(), "nats://", "tls://", 1), TLS: c})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 1))
}

// A prefix of the API, as an account has it that imports another one's JetStream.
func TestAPIPrefix(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	must(t, b.srv.GlobalAccount().AddMapping("JS.far.API.$KV.>", "$KV.>"))
	must(t, b.srv.GlobalAccount().AddMapping("JS.far.API.>", "$JS.API.>"))
	c := Config{URL: b.url(), APIPrefix: "JS.far.API"}
	s := newSink(t, c)
	store := mustOpenStore(t, StoreOptions{Sink: s})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 2))
	commit(t, store, kv("e/a", "1"))
	must(t, store.Close())
	wantValues(t, b.read(t), "1/0 1/1")
	wantKeys(t, mustOpenStore(t, options(b.url())), kv("e/a", "1"))
}
