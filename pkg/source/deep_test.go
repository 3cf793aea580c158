package source

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// deep returns nested arrays with the given number of levels.
func deep(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// deepItem is an item that is nested in so many levels.
func deepItem(name, rv string, levels int) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"s","uid":"uid-%s","resourceVersion":%q,"labels":{"a":"b"},"annotations":{"c":"d"},"managedFields":[]},"data":%s}`,
		name, name, rv, deep(levels-1))
}

// A very deeply nested object does not block other objects, in lists and watches. Its identifying metadata is passed on.
func TestDeepObjects(t *testing.T) {
	whole := func(name, rv string, levels int) string {
		return `{"kind":"ConfigMap","apiVersion":"v1",` + deepItem(name, rv, levels)[1:]
	}
	watched := func(name, rv string, levels int) string {
		return `{"type":"ADDED","object":` + whole(name, rv, levels) + "}\n"
	}
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		s := newStub(t,
			[]answer{pageOf("100", "", deepItem("a", "5", 10_000), deepItem("b", "6", event.MaxLevels), deepItem("c", "7", event.MaxLevels+1), deepItem("d", "8", 1_000_000))},
			[]answer{open(watched("e", "101", 10_000), watched("f", "102", event.MaxLevels), watched("g", "103", 1_000_000), frame("ADDED", "h", "104"))})
		r := run(t, Options{Client: serve(s)}, event.Position{}, nil)
		got := r.await(t, 10)
		r.stop()
		compare(t, got, []string{
			"begun snapshot from ", "listed a@5", "listed b@6", "listed c@7", "listed d@8", "ended 100 >100",
			"added e@101 >100", "added f@102 >101", "added g@103 >102", "added h@104 >103",
		})
		for _, x := range []struct {
			signal, levels int
			item           string
		}{
			{1, 10_000, deepItem("a", "5", 10_000)},
			{2, event.MaxLevels, ""},
			{3, event.MaxLevels + 1, deepItem("c", "7", event.MaxLevels+1)},
			{4, 1_000_000, deepItem("d", "8", 1_000_000)},
			{6, 10_000, whole("e", "101", 10_000)},
			{7, event.MaxLevels, ""},
			{8, 1_000_000, whole("g", "103", 1_000_000)},
		} {
			o := r.signals[x.signal].Object
			if o.Kind != "ConfigMap" || o.APIVersion != "v1" || o.UID != "uid-"+o.Name || o.CutFrom != len(x.item) {
				t.Errorf("%s of %d levels: %s, cut from %d bytes, want %d", o.Name, x.levels, o.UID, o.CutFrom, len(x.item))
			}
			if x.item == "" {
				continue
			}
			head := fmt.Sprintf(`"metadata":{"name":%q,"namespace":"s","uid":%q,"resourceVersion":%q,"labels":{"a":"b"}}}`, o.Name, o.UID, o.ResourceVersion)
			if raw := string(o.Raw); !strings.HasSuffix(raw, head) || len(raw) > len(head)+50 {
				t.Errorf("%s of %d levels became %.200s", o.Name, x.levels, raw)
			}
		}
	})
}

// An object that cannot be requested by its name is not known to be deleted. This applies to names that cannot be part of a URL
// and to shortened names.
func TestNamesThatCannotBeAsked(t *testing.T) {
	asked := 0
	c := NewCollection(Options{
		Client: inMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			status(404, "NotFound")(w, r)
		})),
		Target: configMaps(event.Collection{}),
	})
	long := strings.Repeat("n", 180_000)
	for _, name := range []string{long, event.BoundName(long)} {
		if alive, known := c.Alive(t.Context(), "s", name, "u"); alive || known {
			t.Errorf("of a name of %d bytes it is known that the object does not exist", len(name))
		}
		if err := c.Recall(t.Context(), "5", []Name{{"s", name}}, nil); err != nil {
			t.Error(err)
		}
	}
	if asked > 0 {
		t.Errorf("the server is asked %d times", asked)
	}
}
