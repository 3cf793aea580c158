package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/attribution/logfile"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
)

const (
	completePolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
  resources: [{group: "", resources: [configmaps, namespaces, namespaces/finalize]}]
- level: None
`
	tableType = "application/json;as=Table;v=v1;g=meta.k8s.io"

	enoughRaces = 12
	maxObjects  = 1500
)

// raceForm is a kind of objects that an update by alice removes, because it takes the last finalizer away.
type raceForm struct {
	resource, path  string
	create, marking string   // bodies: of the creation, with a name, and of the deletion
	finalize        string   // behind the object's path
	finalizers      []string // the path of the member that has them
}

// An update removes an object in two steps, and the API server compares the resourceVersion that it names in the first one only. Patches that come in between
// have an object that is removed at another version than after the one that the update named. Nobody but the user of the update is named as the one who has
// removed it, with complete records and without, and the update is always among the candidates.
func TestWriteBeforeTheRemoval(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	must(t, os.WriteFile(policy, []byte(completePolicy), 0o600))
	cluster := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-mode=blocking-strict", "--audit-log-maxsize=1000",
	}})
	for _, form := range []raceForm{
		{
			resource: "configmaps", path: "/api/v1/namespaces/default/configmaps", finalizers: []string{"metadata", "finalizers"},
			create: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"finalizers":["example.com/hold"]}}`,
		},
		{
			resource: "namespaces", path: "/api/v1/namespaces", finalizers: []string{"spec", "finalizers"}, finalize: "/finalize",
			create: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`,
		},
	} {
		t.Run(form.resource, func(t *testing.T) {
			r := &race{T: t, raceForm: form, config: cluster.RESTConfig(), log: log}
			r.run()
		})
	}
}

type race struct {
	*testing.T
	raceForm
	config  *rest.Config
	log     string
	clients map[string]*http.Client
	named   map[string]string // by UID: the version that the successful update named
	after   map[string]string // by UID: the version before the removal
	raced   int
	changes []join.Change
}

func (r *race) run() {
	r.clients, r.named, r.after = map[string]*http.Client{}, map[string]string{}, map[string]string{}
	for _, user := range []string{"alice", "bob", "carol", "admin"} {
		c := rest.CopyConfig(r.config)
		c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		client, err := rest.HTTPClientFor(c)
		must(r, err)
		r.Cleanup(client.CloseIdleConnections)
		r.clients[user] = client
	}
	api, err := dynamic.NewForConfig(r.config)
	must(r, err)
	ctx, cancel := context.WithTimeout(r.Context(), 6*patience)
	defer cancel()
	list, err := api.Resource(schema.GroupVersionResource{Version: "v1", Resource: r.resource}).List(ctx, metav1.ListOptions{})
	must(r, err)
	w, err := api.Resource(schema.GroupVersionResource{Version: "v1", Resource: r.resource}).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	must(r, err)
	defer w.Stop()
	for n := 0; r.raced < enoughRaces; n++ {
		if n == maxObjects {
			r.Fatalf("only %d of %d removals had a write between their steps", r.raced, n)
		}
		name := fmt.Sprintf("race-%d", n)
		accept := tableType // says nothing about the object
		if n%2 == 0 {
			accept = ""
		}
		uid := r.remove(ctx, name, accept)
		r.watched(ctx, w, uid)
		if r.named[uid] != r.after[uid] {
			r.raced++
		}
	}
	r.request(ctx, "admin", http.MethodPost, r.path, fmt.Sprintf(r.create, "the-last-one"), "")
	for _, complete := range []bool{true, false} {
		r.judge(complete, list.GetResourceVersion())
	}
}

// remove creates an object and removes it, with patches at the same time, and returns its UID. accept is what the deletion accepts, which sets the
// deletionTimestamp.
func (r *race) remove(ctx context.Context, name, accept string) (uid string) {
	made := r.request(ctx, "admin", http.MethodPost, r.path, fmt.Sprintf(r.create, name), "")
	uid = string(made.GetUID())
	object := r.path + "/" + name
	patching, stop := context.WithCancel(ctx)
	patched := make(chan struct{})
	go func() {
		defer close(patched)
		for i := 0; patching.Err() == nil; i++ {
			r.request(ctx, "bob", http.MethodPatch, object, fmt.Sprintf(`{"metadata":{"annotations":{"a":"%d"}}}`, i), "")
		}
	}()
	defer func() { stop(); <-patched }()
	r.request(ctx, "carol", http.MethodDelete, object, "", accept)
	for ctx.Err() == nil {
		found := r.request(ctx, "alice", http.MethodGet, object, "", "")
		must(r, unstructured.SetNestedStringSlice(found.Object, nil, r.finalizers...))
		body, err := json.Marshal(found)
		must(r, err)
		if r.request(ctx, "alice", http.MethodPut, object+r.finalize, string(body), "").GetUID() != "" {
			r.named[uid] = found.GetResourceVersion()
			return uid
		}
	}
	r.Fatalf("%s was not removed in time", name)
	return uid
}

// request makes a request of a user, and returns the object that is the answer; an empty one: it is not one.
func (r *race) request(ctx context.Context, user, method, path, body, accept string) *unstructured.Unstructured {
	req, err := http.NewRequestWithContext(ctx, method, r.config.Host+path, strings.NewReader(body))
	if err == nil {
		req.Header.Set("Content-Type", map[bool]string{true: mergeType, false: jsonType}[method == http.MethodPatch])
		req.Header.Set("Accept", "application/json")
		if accept != "" {
			req.Header.Set("Accept", accept)
		}
	}
	o := &unstructured.Unstructured{}
	var res *http.Response
	if err == nil {
		res, err = r.clients[user].Do(req)
	}
	if err != nil {
		r.Errorf("%s %s: %v", method, path, err)
		return o
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&o.Object); err != nil && !errors.Is(err, io.EOF) {
		r.Errorf("%s %s: %v", method, path, err)
	}
	return o
}

// watched adds the changes of an object, up to its removal.
func (r *race) watched(ctx context.Context, w watch.Interface, uid string) {
	before := ""
	for {
		select {
		case <-ctx.Done():
			r.Fatal("the watch has not brought the removal in time")
		case e := <-w.ResultChan():
			o, is := e.Object.(*unstructured.Unstructured)
			if !is {
				r.Fatalf("the watch brings %+v", e)
			}
			if string(o.GetUID()) != uid {
				continue
			}
			c := join.Change{
				ID: uint64(len(r.changes) + 1), Object: join.Object{Resource: r.resource, Namespace: o.GetNamespace(), Name: o.GetName()},
				UID: uid, Version: o.GetResourceVersion(), Before: before,
				Kind: map[watch.EventType]join.Kind{watch.Added: join.Created, watch.Modified: join.Changed, watch.Deleted: join.Removed}[e.Type],
			}
			r.changes = append(r.changes, c)
			if c.Kind == join.Removed {
				r.after[uid] = before
				return
			}
			before = c.Version
		}
	}
}

// judge joins all changes with all records.
func (r *race) judge(complete bool, since string) {
	now := time.Now()
	j := join.New(join.Options{Complete: complete, Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 1 << 20, MaxRequests: 1 << 20})
	j.Floor(join.Resource{Resource: r.resource}, join.Marks{0}, since, now)
	records := r.records()
	for i, record := range records {
		j.Read(0, uint64(i+1), record, now)
	}
	removals := map[uint64]bool{}
	for _, c := range r.changes {
		c.Seen, c.At, c.Noticed = join.Marks{uint64(len(records))}, now, now
		j.Change(c)
		removals[c.ID] = c.Kind == join.Removed
	}
	j.Settle(now.Add(2 * time.Hour))
	exact, named, all := 0, 0, 0
	user := func(record *audit.Record) string { return record.Actor.Impersonated.Name }
	for _, v := range j.Take() {
		if !removals[v.Change] {
			continue
		}
		all++
		if v.Exact != nil {
			if exact++; user(v.Exact) != "alice" {
				r.Errorf("complete records %t: %s (%s) is said to have removed %s", complete, user(v.Exact), v.Exact.Verb, v.Exact.Name)
			}
			continue
		}
		isCandidate := v.LeftOut
		for _, record := range v.Candidates {
			isCandidate = isCandidate || user(record) == "alice" && record.Verb == "update"
		}
		if named++; !isCandidate {
			r.Errorf("complete records %t: the update by alice is no candidate of change %d (%s): %d others are", complete, v.Change, v.Reason, len(v.Candidates))
		}
	}
	r.Logf("complete records %t: of %d removals, %d with a write between their steps, %d have an exact request and %d have candidates", complete, all, r.raced, exact, named)
	if complete && exact*4 < all {
		r.Errorf("of %d removals only %d have an exact request", all, exact)
	}
}

// records returns all records of the audit log that are about the resource.
func (r *race) records() (list []*audit.Record) {
	f := logfile.Open(logfile.Options{Path: r.log, Parser: audit.NewParser(audit.Options{Ends: true})}, logfile.Position{})
	defer func() { must(r, f.Close()) }()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	for {
		c, err := f.Next()
		if errors.Is(err, io.EOF) {
			must(r, f.Wait(ctx))
			continue
		}
		must(r, err)
		for i := range c.Records {
			record := &c.Records[i]
			if record.Resource == r.resource {
				list = append(list, record)
			}
			if record.Resource == r.resource && record.Name == "the-last-one" && record.Stage == audit.Complete {
				return list
			}
		}
	}
}
