package peer

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/kubebridge/kubebridge/bench/internal/corpus"
)

// Raw must send the same objects as the bridge; otherwise their speeds cannot be compared.
func TestScan(t *testing.T) {
	for _, resource := range []string{"pods", "events", "secrets", "widgets"} {
		frames, err := corpus.Frames(resource)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range frames {
			f, err := scan(append(b, '\n'))
			if err != nil {
				t.Fatal(err)
			}
			var in struct {
				Type   string
				Object map[string]any
			}
			var out struct {
				ID, Subject, Kind string
				Data              struct{ Object map[string]any }
			}
			if err := json.Unmarshal(b, &in); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(f.appendEvent(nil, b, nil), &out); err != nil {
				t.Fatal(err)
			}
			meta := in.Object["metadata"].(map[string]any)
			delete(meta, "managedFields")
			if !reflect.DeepEqual(in.Object, out.Data.Object) {
				t.Errorf("%s: another object", out.Subject)
			}
			if out.ID != meta["uid"].(string)+":"+meta["resourceVersion"].(string) || out.Kind != in.Object["kind"] || string(f.typ) != in.Type {
				t.Errorf("got %+v", out)
			}
		}
	}
}
