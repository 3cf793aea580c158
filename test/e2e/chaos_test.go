package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

const (
	// chaosFor is how long the chaos lasts, on each bus; chaosEnv overrides it.
	chaosFor = 10 * time.Second
	chaosEnv = "KUBEBRIDGE_E2E_CHAOS"
	// seedEnv repeats the decisions of a failed run. Their effects depend on the machine's speed.
	seedEnv = "KUBEBRIDGE_E2E_SEED"
)

// Objects change all the time while the bridge and everything around it fails. Afterwards the events on the bus
// must be right.
func TestChaos(t *testing.T) {
	for _, name := range buses {
		for suffix, gone := range map[string]bool{"": false, " and history lost": true} {
			t.Run(name+suffix, func(t *testing.T) { chaos(t, name, gone) })
		}
	}
}

func chaos(t *testing.T, busName string, gone bool) {
	seed, duration := uint64(time.Now().UnixNano()), chaosFor
	var err error
	if s := os.Getenv(seedEnv); s != "" {
		seed, err = strconv.ParseUint(s, 10, 64)
	}
	if s := os.Getenv(chaosEnv); s != "" && err == nil {
		duration, err = time.ParseDuration(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s=%d", seedEnv, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, options{bus: busName})
	w.install()
	types := []kube.Type{kube.ConfigMaps, w.widgets}
	w.bridges(types...)
	w.keepHistory()
	w.start() // before the changes, because the first list would publish only their outcome
	changing, stop := context.WithTimeout(t.Context(), duration)
	defer stop()
	changed := make(chan error, 1)
	changer := rand.New(rand.NewPCG(seed, 1))
	go func() { changed <- keepChanging(changing, w.kube, changer, types) }()

	faults := map[string]func(){
		"kill": func() { w.bridge.Kill(); w.run() },
		"stop": func() { w.bridge.Signal(syscall.SIGTERM); w.waitABit(random); w.bridge.Kill(); w.run() },
		"stall": func() {
			w.bridge.Signal(syscall.SIGSTOP)
			w.waitABit(random)
			w.bridge.Signal(syscall.SIGCONT)
		},
		"cut":    w.proxy.Cut,
		"refuse": func() { w.proxy.Refuse(); w.waitABit(random); w.proxy.Pass() },
		"hold":   func() { w.proxy.Hold(); w.waitABit(random); w.proxy.Pass() },
		"hold and kill": func() {
			w.proxy.Hold()
			w.waitABit(random)
			w.bridge.Kill()
			w.proxy.Pass()
			w.run()
		},
		"bus restart": func() { w.busDown(); w.waitABit(random); w.busUp() },
	}
	names := []string{"kill", "stop", "stall", "cut", "refuse", "hold", "hold and kill", "bus restart"}
	if gone {
		faults["history lost"] = w.expire
		names = append(names, "history lost", "history lost")
	}
	count := map[string]int{}
	for changing.Err() == nil {
		w.waitABit(random)
		fault := names[random.IntN(len(names))]
		count[fault]++
		faults[fault]()
	}
	w.must(<-changed)
	if !w.bridge.Running() {
		t.Error("the bridge has ended on its own")
		w.run()
	}
	all := w.verify(check.Options{Types: types, Gap: gone, Repeats: busName == busKafka})
	t.Logf("%d events about %d objects, over %v", len(all), len(w.kube.Ledger.Objects(types...)), count)
}

// keepHistory makes the API server keep ConfigMaps' changes from the present on for as long as it keeps any, which is 75 s at least. It refuses a watch from
// before the first change that it has kept, although nothing happened in between. That can be the test's first change, if those before it are old.
func (w *world) keepHistory() {
	w.t.Helper()
	client, err := kubernetes.NewForConfig(w.cluster.RESTConfig())
	w.must(err)
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	m, err := maps.Create(w.soon(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "history-"}}, metav1.CreateOptions{})
	w.must(err)
	w.t.Cleanup(func() { _ = maps.Delete(context.Background(), m.Name, metav1.DeleteOptions{}) })
}

// waitABit waits for up to half a second.
func (w *world) waitABit(random *rand.Rand) {
	select {
	case <-time.After(time.Duration(random.Int64N(int64(500 * time.Millisecond)))):
	case <-w.t.Context().Done():
	}
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
