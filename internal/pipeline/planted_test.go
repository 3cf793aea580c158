package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kubebridge/kubebridge/internal/recent"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// plant is an object with secrets wherever one may stand.
func plant(kind, uid string, rv, n int, padding string) *source.Object {
	secret := fmt.Sprintf("planted-%d", n)
	applied, _ := json.Marshal(fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":"x"},"data":{"password":%q},"spec":{"containers":[{"env":[{"name":"A","value":%q}]}]}}`, kind, secret, secret))
	o, err := source.ParseObject(fmt.Appendf(nil, `{"apiVersion":"v1","kind":%q,"metadata":{"name":"x","namespace":"n","uid":%q,"resourceVersion":"%d",`+
		`"annotations":{"kubectl.kubernetes.io/last-applied-configuration":%s},`+
		`"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:%02dZ","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:password":{}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:value":{}}}}}}}}]},`+
		`"data":{"password":%q},"spec":{"padding":%q,"containers":[{"name":"c","env":[{"name":"A","value":%q}]}]}}`,
		kind, uid, rv, applied, n, secret, padding, secret))
	if err != nil {
		panic(err)
	}
	return &o
}

// TestPlantedSecrets looks for what is to be hidden wherever something of an object
// may come to stand: messages, what they say of the state before, dead letters, logs,
// the status, the last changes, and the files of the checkpoint.
func TestPlantedSecrets(t *testing.T) {
	for _, policy := range []Oversize{Truncate, ToDeadLetters, Hold} {
		t.Run(string(policy), func(t *testing.T) {
			dir := t.TempDir()
			store, err := file.Open(dir, identity, file.Options{})
			if err != nil {
				t.Fatal(err)
			}
			core, logs := observer.New(zapcore.DebugLevel)
			b := &bus{limit: func(r *event.Record) int {
				if policy == Hold || r.Route == deadTopic {
					return 1 << 20
				}
				return 6000
			}}
			s := &script{t: t, store: store, bus: b, started: map[string]*collectionScript{}, done: make(chan error, 1)}
			s.lane = newPolicyLane(t, b, store, policy)
			s.lane.log = zap.New(core)
			last := recent.New()
			s.lane.onDelivery = last.Listen("sink")
			s.lane.cluster = s
			hard, kill := context.WithCancel(t.Context())
			soft, stop := context.WithCancel(hard)
			s.stop, s.kill = stop, kill
			go func() { s.done <- s.lane.Run(hard, soft) }()
			clean := func(what, text string) {
				t.Helper()
				if strings.Contains(text, "planted") || strings.Contains(text, "cGxhbnRlZ") { // also in base64
					t.Errorf("%s: %s", what, text)
				}
			}
			var bodies []string
			for _, x := range []struct{ resource, kind string }{{"secrets", "Secret"}, {"configmaps", "ConfigMap"}, {"pods", "Pod"}} {
				s.set([]Wanted{{
					Target: source.Target{
						Collection: event.Collection{Resource: x.resource},
						Resource:   source.Resource{Version: "v1", Name: x.resource, Kind: x.kind, Namespaced: true},
					},
					Options: CollectionOptions{
						Redact: []shape.Rule{{Preset: shape.PodEnv}, {Paths: []string{"data.password"}, With: shape.WithMask}},
						Filter: `int(object.data.password) > 0`, // CEL's error quotes the value
						Ignore: []string{"leases"}, Before: true, Patch: true, ChangedBy: true,
					},
				}}, nil)
				c := s.collection(x.resource, nil)
				uid := "u-" + x.resource
				c.lists("", source.ReasonSnapshot, "10", plant(x.kind, uid, 5, 1, ""))
				c.says(modified(plant(x.kind, uid, 11, 2, "small"), "10"),
					modified(plant(x.kind, uid, 12, 3, strings.Repeat("x", 9000)), "11"),
					modified(plant(x.kind, uid, 13, 4, ""), "12"), modified(plant(x.kind, uid, 14, 5, "last"), "13"))
				s.handled()
				s.awaitIdle()
				if err := s.lane.do(t.Context(), func(context.Context) error {
					return store.Scan(checkpoint.AllBodies(), func(_, value []byte) error {
						body, err := s.lane.keeping().decoder.DecodeAll(value[1+int(value[0]):], nil)
						bodies = append(bodies, string(body))
						return err
					})
				}); err != nil {
					t.Fatal(err)
				}
			}
			shown := 0
			for _, resource := range []string{"secrets", "configmaps", "pods"} {
				changes := last.Of("sink", resource, true)
				text, err := json.Marshal(changes)
				if err != nil {
					t.Fatal(err)
				}
				clean("last changes", string(text))
				for _, c := range changes {
					shown += min(len(c.Diff), 1)
				}
			}
			status, err := json.Marshal(s.lane.Status())
			if err != nil {
				t.Fatal(err)
			}
			s.finish()
			kill()
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			clean("status", string(status))
			for _, body := range bodies {
				clean("kept", body)
			}
			patched, by, dead := 0, 0, 0
			for _, r := range b.records {
				clean(r.ID, string(r.Value))
				if e, err := event.Parse(r.Value); err != nil {
					t.Error(err)
				} else {
					patched += min(len(e.Patch), 1)
					by += min(len(e.ChangedBy), 1)
				}
				if r.Route == deadTopic {
					dead++
				}
			}
			if len(bodies) < 3 || patched == 0 || by == 0 || shown < 3 || (dead > 0) != (policy == ToDeadLetters) {
				t.Errorf("%d bodies, %d patches, %d changedby, %d dead letters, %d diffs: too little was looked at", len(bodies), patched, by, dead, shown)
			}
			for _, line := range logs.All() {
				clean("log", fmt.Sprint(line.Message, line.ContextMap()))
			}
			if logs.FilterMessageSnippet("the filter cannot judge").Len() == 0 {
				t.Error("the filter did not fail")
			}
			err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				text, err := os.ReadFile(path)
				clean(path, string(text))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
