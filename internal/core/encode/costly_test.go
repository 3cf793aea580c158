package encode_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/test/hostiletest"
)

// An object that would take too many steps to process is published, and its event says what was left out.
func TestCostlyObject(t *testing.T) {
	r := newRig(t, configMaps, encode.Settings{Patch: true, ChangedBy: true}, nil)
	object := func(version string, state []byte) string {
		text := strings.Replace(string(state), `"example.com/v1","kind":"Widget"`, `"v1","kind":"ConfigMap"`, 1)
		for n := range 3 {
			text = strings.Replace(text, fmt.Sprintf(`"resourceVersion":"%d"`, n), `"resourceVersion":"`+version+`"`, 1)
		}
		return text
	}
	for _, c := range hostiletest.Changes(200_000) {
		if c.Name != "env with many sets of keys" {
			continue
		}
		r.list("snapshot", "10", reconcile.Gone, object("5", c.Before))
		r.commit()
		r.watch(object("11", c.After))
		r.commit()
	}
	e := r.values[len(r.values)-1]
	if e.ResourceVersion != "11" || e.ChangedBy != nil || len(e.LeftOut) != 1 || e.LeftOut[0] != "changedby" || e.Patch == nil || r.counted[encode.CostlyChangedBy] != 1 {
		t.Errorf("%s at %s: changedby %s, left out %v, counted %v", e.Type, e.ResourceVersion, e.ChangedBy, e.LeftOut, r.counted)
	}
}

// Nothing is left out of an ordinary object, whichever options are configured.
func TestOrdinaryObjects(t *testing.T) {
	for _, c := range hostiletest.Ordinary(t) {
		before, after := ordinary(t, c.Before, "5"), ordinary(t, c.After, "11")
		r := newRig(t, configMaps, encode.Settings{Before: true, Patch: true, ChangedBy: true, Filter: `has(object.spec) ? object.spec != before.spec || true : true`, Ignore: []string{"**.lastHeartbeatTime"}}, nil)
		r.list("snapshot", "10", reconcile.Gone, before)
		r.commit()
		r.watch(after)
		r.commit()
		for what, n := range r.counted {
			if n > 0 && what != encode.Ignored {
				t.Errorf("%s: %s is counted", c.Name, what)
			}
		}
	}
}

// ordinary returns a state as the state of one object, at a version.
func ordinary(t *testing.T, state []byte, version string) string {
	var o map[string]any
	if err := json.Unmarshal(state, &o); err != nil {
		t.Fatal(err)
	}
	m := o["metadata"].(map[string]any)
	m["name"], m["namespace"], m["uid"], m["resourceVersion"] = "a", "shop", "u", version
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
