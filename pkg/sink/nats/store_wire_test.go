package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// FuzzKey: every key has a unique token, which is safe in a
// subject; and every token in a bucket is a key or an error.
func FuzzKey(f *testing.F) {
	f.Add("e/pods/a/b", "=head", "")
	f.Add("=redo-1", "=long-00", "ZS9h")
	f.Add("e/roles.rbac.authorization.k8s.io/a/*.> \x00", "=2e", "%")
	f.Fuzz(func(t *testing.T, key, found, header string) {
		if key != "" {
			m := put("p.", key, []byte("v"))
			token := m.Subject[len("p."):]
			if len(token) > longestToken || bytes.ContainsAny([]byte(token), ".*> \r\n\x00") || token == headToken || bytes.HasPrefix([]byte(token), []byte(redoToken)) {
				t.Fatalf("%q has the token %q", key, token)
			}
			if got, err := keyOf(token, m.Header); err != nil || string(got) != key {
				t.Fatalf("%q came back as %q, %v", key, got, err)
			}
		}
		got, err := keyOf(found, nats.Header{headerKey: {header}})
		if err != nil && (got != nil || !errors.Is(err, checkpoint.ErrCorrupt)) {
			t.Fatalf("%q: %q, %v", found, got, err)
		}
	})
}

// FuzzHead: a head or a packed write that does not parse is reported as a damaged, older
// or newer checkpoint.
func FuzzHead(f *testing.F) {
	f.Add(head{Version: checkpoint.Version, Writer: "w", Redo: 3}.encode(), []byte(`[{"k":"YQ==","v":null},{"k":"YQ==","v":""}]`))
	f.Add([]byte(`{"version":2}`), []byte(`[{"k":1}]`))
	f.Fuzz(func(t *testing.T, text, redo []byte) {
		h, err := decodeHead(text)
		switch {
		case err != nil:
			if h != (head{}) || !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrNewer) && !errors.Is(err, checkpoint.ErrOlder) {
				t.Fatalf("%s: %+v, %v", text, h, err)
			}
		default:
			if again, err := decodeHead(h.encode()); again != h || err != nil {
				t.Fatalf("%+v came back as %+v, %v", h, again, err)
			}
		}
		changes, err := unpack(redo)
		if err != nil {
			if changes != nil || !errors.Is(err, checkpoint.ErrCorrupt) {
				t.Fatalf("%s: %v, %v", redo, changes, err)
			}
			return
		}
		all := make([]packed, len(changes))
		for i, c := range changes {
			all[i] = packed(c)
		}
		text, err = json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := unpack(text); err != nil || !reflect.DeepEqual(again, changes) { // nil deletes, "" does not
			t.Fatalf("%s: %v came back as %v, %v", redo, changes, again, err)
		}
	})
}
