package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// upgradeOver names the releases that TestUpgrade goes through.
var upgradeOver = flag.String("upgrade.releases", "", "releases of Kubernetes, such as v1.34.4,v1.37.2: the API server of TestUpgrade goes from each to the next; without it, from the usual one to the same")

// The API server is replaced, with the same etcd, while objects change. No event is lost, and none is repeated.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	releases := strings.Split(*upgradeOver, ",")
	if len(releases) == 1 {
		releases = append(releases, releases[0])
	}
	own := clustertest.Start(t, clustertest.Options{Binary: programOf(t, releases[0])})
	w := newWorld(t, options{cluster: own})
	w.install()
	types := []kube.Type{kube.ConfigMaps, w.widgets}
	w.bridges(types...)
	w.start()
	changing, stop := context.WithCancel(t.Context())
	defer stop()
	changed := make(chan error, 1)
	go func() { changed <- changeThroughout(changing, w.kube, types) }()

	w.moreEvents()
	for _, release := range releases[1:] {
		w.must(own.Upgrade(w.within(3*time.Minute), programOf(t, release)))
		if is, err := discovery.NewDiscoveryClientForConfigOrDie(own.RESTConfig()).ServerVersion(); err != nil || release != "" && is.GitVersion != release {
			t.Fatalf("the API server is %v (%v), want %s", is, err, release)
		}
		w.moreEvents()
	}
	stop()
	w.must(<-changed)
	all := w.verify(check.Options{Types: types, Gap: true})
	t.Logf("%d events about %d objects", len(all), len(w.kube.Ledger.Objects(types...)))
}

func programOf(t *testing.T, release string) string {
	t.Helper()
	build := func(ctx context.Context) (string, error) { return clustertest.BuildRelease(ctx, release) }
	if release == "" {
		build = clustertest.Build
	}
	program, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// moreEvents waits until changes of some time are on the bus.
func (w *world) moreEvents() {
	w.t.Helper()
	const more = 60
	messages, err := w.log.Messages()
	w.must(err)
	_, err = w.log.Wait(w.within(3*time.Minute), func(all []bus.Message) bool { return len(all) >= len(messages)+more })
	w.must(err)
}

// changeThroughout keeps changing objects until ctx ends, and goes on when the API server is back.
func changeThroughout(ctx context.Context, client *kube.Client, types []kube.Type) error {
	random := rand.New(rand.NewPCG(1, 2))
	for ctx.Err() == nil {
		if err := keepChanging(ctx, client, random, types); err != nil {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	_, err := recount(context.WithoutCancel(ctx), client, types)
	return err
}

// keepChanging creates, patches, deletes and recreates a few objects of each type until ctx ends. It can be called again after an error.
func keepChanging(ctx context.Context, client *kube.Client, random *rand.Rand, types []kube.Type) error {
	const names = 15
	exists, err := recount(ctx, client, types)
	if err != nil {
		return err
	}
	for step := 0; ctx.Err() == nil; step++ {
		t := types[random.IntN(len(types))]
		name := fmt.Sprintf("o-%d", random.IntN(names))
		key := t.Resource + "/" + name
		// A request is not cancelled, because then it would not be known whether it was served.
		patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		var err error
		switch {
		case !exists[key]:
			_, err = client.Create(patient, t, name, sample(t, fmt.Sprint(step)))
			exists[key] = err == nil
		case random.IntN(4) == 0:
			err = client.Delete(patient, t, name)
			exists[key] = err != nil
		default:
			_, err = client.Patch(patient, t, name, change(fmt.Sprint(step)))
		}
		cancel()
		if err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// recount enters what the server has into the ledger, since the answer to the last write may have been lost. It returns which
// resources and names there are.
func recount(ctx context.Context, client *kube.Client, types []kube.Type) (exists map[string]bool, err error) {
	exists = map[string]bool{}
	uids := map[string]bool{}
	for _, t := range types {
		objects, _, err := client.List(ctx, t, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range objects {
			o := &objects[i]
			client.Ledger.Wrote(t, o)
			exists[t.Resource+"/"+o.GetName()], uids[string(o.GetUID())] = true, true
		}
	}
	for _, o := range client.Ledger.Objects(types...) {
		if !uids[o.UID] {
			client.Ledger.Deleted(o.UID)
		}
	}
	return exists, nil
}
