package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// entries is a world with two entries of one resource. Both select some of the same objects.
type entries struct {
	*world
	random *rand.Rand
	teams  map[string][]string // by entry: the values of the label team that it selects
	// truths are what the server had, by the time.
	truths []truth
	// selections are the teams that were selected, in the order of time.
	selections []selection
}

type truth struct {
	what string
	at   time.Time
	want map[string]map[string]any
}

// selection is what was selected until a resourceVersion, as of which every entry is complete.
type selection struct {
	until  int
	teams  []string
	steady bool // nothing but objects changed since the selection before it
}

// TestTwoEntries: objects change all the time, also while one entry is edited, while the checkpoint is lost, and while the other
// entry is removed. Where nothing is marked as incomplete, a state is what the server had: a restore would otherwise
// delete objects, or put old ones back.
func TestTwoEntries(t *testing.T) {
	t.Parallel()
	for name, kafka := range map[string]bool{"nats": false, "kafka": true} {
		t.Run(name, func(t *testing.T) { twoEntries(t, kafka) })
	}
}

func twoEntries(t *testing.T, kafka bool) {
	w := &entries{world: newBus(t, kafka), random: rand.New(rand.NewPCG(1, 2)), teams: map[string][]string{"a": {"a", "both"}, "b": {"b", "both"}}}
	if kafka { // each entry has a topic of its own
		w.conf.Sinks[0].Kafka["topic"] = "k8s.{cluster}.{resource}.{entry}"
	}
	w.create(kube.ConfigMaps, "marker", kube.Fields{"metadata": labelled("both")})
	w.follow()
	w.start()
	w.note("the first lists")
	w.churn(60, "changes")

	w.teams["b"] = []string{"b", "both", "c"}
	w.during(w.follow, "selection", "b")
	w.note("an edited selector")
	w.churn(40, "changes after the edit")

	w.process.Kill()
	w.change(10)
	if kafka {
		w.must(os.RemoveAll(w.checkpoint()))
	} else { // the stream has it, too
		w.bridge(0, "checkpoint", "reset", "--yes")
	}
	w.during(w.start, "reset", "a")
	w.note("a lost checkpoint")

	delete(w.teams, "a")
	w.during(w.follow, "removed", "a")
	w.note("a removed entry")
	w.churn(40, "changes after the removal")

	for _, x := range w.truths {
		out, notes := w.bridge(0, "state", "--at", at(x.at), "-n", w.ns, "-o", "json", "configmaps")
		if diff := cmp.Diff(x.want, w.parsed(out)); diff != "" {
			t.Errorf("after %s, %s (-server +bus):\n%s", x.what, at(x.at), diff)
		}
		if strings.Contains(notes, "incomplete") || !strings.Contains(notes, "complete up to resourceVersion ") {
			t.Errorf("after %s standard error has\n%s", x.what, notes)
		}
	}
	w.versions()
}

func labelled(team string) map[string]any {
	return map[string]any{"labels": map[string]any{"team": team}}
}

// follow configures the entries and makes the bridge follow them.
func (w *entries) follow() {
	w.conf.Resources = nil
	for _, name := range []string{"a", "b"} {
		if teams := w.teams[name]; teams != nil {
			w.conf.Resources = append(w.conf.Resources, bridge.Resource{
				Resource: "configmaps", Name: name, Namespaces: []string{w.ns}, LabelSelector: "team in (" + strings.Join(teams, ",") + ")",
				SyncedEvery: "1s",
			})
		}
	}
	w.configure()
}

// selected are the teams that some entry selects.
func (w *entries) selected() (out []string) {
	for _, teams := range w.teams {
		out = append(out, teams...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// churn only changes objects, and records that.
func (w *entries) churn(times int, what string) {
	w.t.Helper()
	w.change(times)
	w.note(what)
	w.selections[len(w.selections)-1].steady = true
}

func (w *entries) change(times int) {
	w.t.Helper()
	for range times {
		w.must(w.write(w.ctx))
	}
}

func (w *entries) write(ctx context.Context) error {
	name := fmt.Sprintf("o%d", w.random.IntN(12))
	team := []string{"a", "b", "both", "c"}[w.random.IntN(4)]
	var err error
	switch w.random.IntN(3) {
	case 0:
		err = w.kube.Delete(ctx, kube.ConfigMaps, name)
	default:
		_, err = w.kube.Patch(ctx, kube.ConfigMaps, name, fmt.Sprintf(`{"metadata":{"labels":{"team":%q}},"data":{"n":"%d"}}`, team, w.random.Int()))
	}
	if apierrors.IsNotFound(errors.Unwrap(err)) {
		_, err = w.kube.Create(ctx, kube.ConfigMaps, name, kube.Fields{"metadata": labelled(team)})
	}
	return err
}

// during does something to the bridge while objects change, until a collection event with a reason is on the bus.
func (w *entries) during(do func(), reason, entry string) {
	w.t.Helper()
	before, err := w.log.Messages()
	w.must(err)
	ctx, stop := context.WithCancel(w.ctx)
	writer, _ := errgroup.WithContext(ctx)
	writer.Go(func() error {
		for ctx.Err() == nil {
			if err := w.write(w.ctx); err != nil {
				return err
			}
		}
		return nil
	})
	do()
	_, err = w.log.Wait(w.ctx, func(all []bus.Message) bool {
		return slices.ContainsFunc(all[len(before):], func(m bus.Message) bool {
			return m.Is("synced", "closed") && m.Data.Reason == reason && m.Collection() == w.collection(entry)
		})
	})
	stop()
	w.must(errors.Join(err, writer.Wait()))
}

func (w *entries) collection(entry string) string { return "configmaps:" + entry + "@" + w.ns }

// note waits until every entry has published what the server has, and has said so. It notes that, and the time.
// A resourceVersion is complete once a later one was seen, so there are two changes.
func (w *entries) note(what string) {
	w.t.Helper()
	first, last := w.mark(), w.mark()
	marked, err := strconv.Atoi(first.GetResourceVersion())
	w.must(err)
	until := marked
	for entry := range w.teams {
		synced := 0 // the first resourceVersion from the mark on as of which the entry says that it is complete
		_, err := w.log.Wait(w.ctx, func(all []bus.Message) bool {
			published := false
			synced = 0
			for i := range all {
				m := &all[i]
				switch {
				case m.Collection() != w.collection(entry):
				case m.Is("gap"):
					synced = 0
				case m.Is("synced") && synced == 0:
					if at, err := strconv.Atoi(m.RV()); err == nil && at >= marked {
						synced = at
					}
				default:
					published = published || m.UID() == string(last.GetUID()) && m.RV() == last.GetResourceVersion()
				}
			}
			return published && synced != 0
		})
		w.must(err)
		until = max(until, synced)
	}
	w.selections = append(w.selections, selection{until: until, teams: w.selected()})
	w.truths = append(w.truths, truth{what, time.Now(), w.server(metav1.ListOptions{}, w.selected())})
}

// mark changes an object that every entry selects.
func (w *entries) mark() *unstructured.Unstructured {
	w.t.Helper()
	out, err := w.kube.Patch(w.ctx, kube.ConfigMaps, "marker", fmt.Sprintf(`{"data":{"n":"%d"}}`, w.random.Int()))
	w.must(err)
	return out
}

// server is what the server has, or had at a resourceVersion.
func (w *entries) server(o metav1.ListOptions, teams []string) map[string]map[string]any {
	w.t.Helper()
	o.LabelSelector = "team in (" + strings.Join(teams, ",") + ")"
	list, _, err := w.kube.List(w.ctx, kube.ConfigMaps, o)
	w.must(err)
	out := map[string]map[string]any{}
	for _, u := range list {
		u.SetManagedFields(nil)
		out["configmaps "+u.GetName()] = u.Object
	}
	return out
}

// versions compares states at resourceVersions with what the server had at these. While an entry is edited, a
// collection has either selection. While only objects change, every resourceVersion is covered.
func (w *entries) versions() {
	w.t.Helper()
	for n := range 30 { // in each part of the test
		i := 1 + n%(len(w.selections)-1)
		before, after := w.selections[i-1], w.selections[i]
		rv := before.until + w.random.IntN(after.until-before.until)
		code, out, notes := w.ask("state", "--at", strconv.Itoa(rv), "-n", w.ns, "-o", "json", "configmaps")
		if incomplete := code == 3 && strings.Contains(notes, "not covered") || code == 0 && strings.Contains(notes, "incomplete"); incomplete && !after.steady {
			continue
		}
		if code != 0 || strings.Contains(notes, "incomplete") {
			w.t.Errorf("before %s, at %d: exit code %d: %s", w.truths[i].what, rv, code, notes)
			continue
		}
		o := metav1.ListOptions{ResourceVersion: strconv.Itoa(rv), ResourceVersionMatch: metav1.ResourceVersionMatchExact}
		var diffs []string
		for _, s := range []selection{before, after} {
			diffs = append(diffs, cmp.Diff(w.server(o, s.teams), w.parsed(out)))
		}
		if !slices.Contains(diffs, "") {
			w.t.Errorf("at %d (-server +bus):\n%s\n%s", rv, strings.Join(diffs, "\nor "), notes)
		}
	}
}
