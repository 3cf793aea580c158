package nats

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// NATS accepts the event of an object with any name, in any format and delivery, and the object's name can be read from the
// headers.
func TestLongNames(t *testing.T) {
	t.Parallel()
	for _, format := range []event.Format{event.Structured, event.Binary, event.Plain} {
		for _, delivery := range []string{exactlyOnce, atLeastOnce, atMostOnce} {
			t.Run(format.String()+", "+delivery, func(t *testing.T) {
				b := startBus(t, func(*server.Options) {})
				s := newAny(t, testIdentity, Config{URL: b.url(), Delivery: delivery})
				heard := listen(t, b)
				mustOpen(t, s, nil)
				encoder := event.Encoder{Cluster: "test", ClusterUID: "c", Format: format}
				batch := &event.Batch{Seq: 1}
				var names []string
				for _, name := range []string{"web", strings.Repeat("n", 1100), strings.Repeat("n", 180_000), strings.Repeat("\x01", 700_000), strings.Repeat("\u2028", 3000)} {
					name = event.BoundName(name)
					names = append(names, name)
					e := &event.Event{
						Type: event.Added, Time: time.Unix(1, 0), Collection: &event.Collection{Group: "rbac.authorization.k8s.io", Resource: "roles"},
						APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Namespace: "shop", Name: name, UID: "u", ResourceVersion: "5", Run: "7", Incarnation: 7,
					}
					r := event.Record{
						Event: e, ID: e.ID(), Format: format, Route: "k8s.test.roles.shop." + event.SubjectToken(name), Attributes: encoder.Attributes(e),
						State: []event.KV{{Key: []byte("o/roles/shop/" + name), Value: make([]byte, 100)}},
					}
					r.Value = format.Append(nil, r.Attributes, e)
					batch.Records = append(batch.Records, r)
				}
				mustWrite(t, s, batch)
				for i, name := range names {
					m, err := heard.NextMsg(2 * time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					if got := m.Header.Get("ce-name"); got != event.EscapeHeader(name) {
						t.Errorf("message %d has the name %.80q, want %.80q", i, got, name)
					}
					if m.Header.Get(headerState) == stateOmitted {
						t.Errorf("message %d does not say what it changes in the checkpoint", i)
					}
					if !covers("k8s.test.roles.shop.*", m.Subject) {
						t.Errorf("message %d is on %q", i, m.Subject)
					}
				}
			})
		}
	}
}
