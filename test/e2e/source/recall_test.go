package source_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

func (w *world) recall(target source.Target, rv string, objects []source.Name) map[string]*source.Object {
	w.t.Helper()
	got := map[string]*source.Object{}
	c := source.NewCollection(source.Options{Client: w.client, Target: target})
	w.must(c.Recall(w.ctx, rv, objects, func(o *source.Object) error {
		if got[o.Name] != nil {
			w.t.Errorf("%s was found twice", o.Name)
		}
		got[o.Name] = o
		return nil
	}))
	return got
}

// After a server has lost the watch history of a resource, it can still return the last states of objects that were deleted meanwhile, of few
// and of many objects. Here an edit of the CRD makes the server answer a watch with 410.
func TestRecallAfterGone(t *testing.T) {
	const objects = 60
	w := newWorld(t, shared)
	typ := w.install()
	for _, c := range []struct {
		asked     int
		selection event.Collection
		found     int
	}{
		{5, event.Collection{}, 5},
		{objects, event.Collection{}, objects},
		{6, event.Collection{LabelSelector: "half=odd"}, 3}, // the others do not match the selector
		{objects, event.Collection{LabelSelector: "half=odd"}, objects / 2},
		{6, event.Collection{FieldSelector: "metadata.name!=o-1", MetadataOnly: true}, 5},
	} {
		t.Run(fmt.Sprintf("%d of %s", c.asked, c.selection.ID()), func(t *testing.T) {
			w := newWorld(t, shared)
			w.bulk(typ, "o", objects)
			target := w.target(typ, c.selection)
			before := newRecorder()
			rv, err := source.NewCollection(source.Options{Client: w.client, Target: target}).Survey(w.ctx, before)
			w.must(err)
			var names []source.Name
			for i := range c.asked {
				names = append(names, source.Name{Namespace: w.ns, Name: fmt.Sprintf("o-%d", i)})
			}
			w.must(kube.Each(c.asked, func(i int) error { return w.kube.Delete(w.ctx, typ, names[i].Name) }))
			w.must(w.kube.Expire(w.ctx, typ, rv))

			want := before.objects(source.Listed)
			for name := range want {
				if !slices.Contains(names, source.Name{Namespace: w.ns, Name: name}) {
					delete(want, name)
				}
			}
			got := w.recall(target, rv, names)
			if diff := cmp.Diff(bodies(want), bodies(got)); diff != "" || len(got) != c.found {
				t.Errorf("%d were found (-before +recalled):\n%s", len(got), diff)
			}
			for _, o := range got {
				checkForm(t, o, typ, c.selection.MetadataOnly)
			}
		})
	}
}

// Recall finds no objects at a resourceVersion that was compacted, is in the future, or is invalid. This is not an error.
func TestRecallOfWhatTheServerDoesNotHave(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{"--watch-cache=false"}}) // the server answers everything from etcd
	w := newWorld(t, cluster)
	w.bulk(kube.ConfigMaps, "o", 3)
	target := w.target(kube.ConfigMaps, event.Collection{})
	rv, err := source.NewCollection(source.Options{Client: w.client, Target: target}).Survey(w.ctx, newRecorder())
	w.must(err)
	few := []source.Name{{Namespace: w.ns, Name: "o-1"}}
	var many []source.Name
	for i := range 100 {
		many = append(many, source.Name{Namespace: w.ns, Name: fmt.Sprintf("o-%d", i)})
	}
	w.must(w.kube.Delete(w.ctx, kube.ConfigMaps, "o-1"))
	if got := w.recall(target, rv, few); len(got) != 1 {
		t.Errorf("before compaction: found %d", len(got))
	}
	if got := w.recall(target, rv, many); len(got) != 3 {
		t.Errorf("before compaction, of many: found %d", len(got))
	}
	_, err = cluster.CompactEtcd(w.ctx)
	w.must(err)
	for _, rv := range []string{rv, "99999999", "no number"} {
		for _, names := range [][]source.Name{few, many} {
			if got := w.recall(target, rv, names); len(got) != 0 {
				t.Errorf("at %s: found %d", rv, len(got))
			}
		}
	}
}
