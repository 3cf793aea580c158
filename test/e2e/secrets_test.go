package e2e

import (
	"bytes"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// Values of Secrets are neither on the bus, nor in the bridge's log, nor on its disk.
func TestSecretValuesNeverLeave(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "redact"} {
		t.Run("values "+mode, func(t *testing.T) {
			w := newWorld(t, options{types: []kube.Type{kube.Secrets}})
			if mode != "" {
				w.config.Secrets = map[string]any{"values": mode}
			}
			passwords := []string{"correct-horse-battery-staple", "swordfish-swordfish", "hunter2-hunter2"}
			create := func(name, password string) string {
				o, err := w.kube.Create(w.soon(), kube.Secrets, name, kube.Fields{
					"stringData": map[string]any{"password": password, "user": "fixed"},
					"metadata": map[string]any{"annotations": map[string]any{
						"kubectl.kubernetes.io/last-applied-configuration": `{"stringData":{"password":"` + password + `"}}`,
					}},
				})
				w.must(err)
				return string(o.GetUID())
			}
			listed := create("listed", passwords[0])
			w.start()
			watched := create("watched", passwords[0])
			patched, err := w.kube.Patch(w.soon(), kube.Secrets, "watched", `{"stringData":{"password":"`+passwords[1]+`"}}`)
			w.must(err)
			touched, err := w.kube.Patch(w.soon(), kube.Secrets, "watched", change("another label"))
			w.must(err)
			w.published(watched, touched.GetResourceVersion())
			w.delete(kube.Secrets, "listed")
			w.deletionPublished(listed)
			w.must(w.kube.Delete(w.soon(), kube.Secrets, "watched"))
			create("again", passwords[2])
			all := w.settle(kube.Secrets)
			w.none(check.History(w.kube.Ledger, all, check.Options{Types: []kube.Type{kube.Secrets}}), all)

			w.nowhere(all, passwords)
			w.hidden(all, mode == "redact", watched, patched.GetResourceVersion(), touched.GetResourceVersion())
		})
	}
}

// nowhere checks that the texts are neither on the bus, nor in the bridge's log, nor on its disk, plain or in base64.
func (w *world) nowhere(all []bus.Message, texts []string) {
	w.t.Helper()
	places := map[string][]byte{"log": []byte(w.bridge.Log())}
	for i := range all {
		places[all[i].Place] = all[i].Raw
	}
	dir := filepath.Join(w.dir, "checkpoint")
	w.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		places[path], err = os.ReadFile(path)
		return err
	}))
	if len(places) < len(all)+3 {
		w.t.Errorf("only %d places searched", len(places))
	}
	for place, content := range places {
		for _, text := range texts {
			if bytes.Contains(content, []byte(text)) {
				w.t.Errorf("%s has the value %q", place, text)
			}
			// A text has three base64 forms, depending on its offset. Values are encoded alone, so only the first one can occur.
			if b := base64.StdEncoding.EncodeToString([]byte(text))[:16]; bytes.Contains(content, []byte(b)) {
				w.t.Errorf("%s has the value %q in base64", place, text)
			}
		}
	}
}

// hidden checks the replacements of values: one word, or a hash that changes with its value only.
func (w *world) hidden(all []bus.Message, redact bool, uid, changed, unchanged string) {
	w.t.Helper()
	var shown []map[string]string
	for i := range all {
		m := &all[i]
		body := m.Body()
		data, _ := body["data"].(map[string]any)
		if m.OfCollection() || len(data) == 0 {
			continue
		}
		values := map[string]string{}
		for key, v := range data {
			values[key], _ = v.(string)
			if good := redact && v == "redacted" || !redact && strings.HasPrefix(values[key], "hmac+sha256/"); !good {
				w.t.Errorf("value %q of %s: %s", v, key, m)
			}
		}
		annotations, _ := body["metadata"].(map[string]any)["annotations"].(map[string]any)
		if a, ok := annotations["kubectl.kubernetes.io/last-applied-configuration"].(string); ok {
			values["annotation"] = a
			if strings.Contains(a, "{") {
				w.t.Errorf("the last applied configuration is %q: %s", a, m)
			}
		}
		if m.UID() == uid && !m.Is("deleted") && (m.Is("added") || slices.Contains([]string{changed, unchanged}, m.RV())) {
			shown = append(shown, values)
		}
	}
	if len(shown) != 3 {
		w.t.Fatalf("want the three versions of the secret, got %v", shown)
	}
	if redact {
		return
	}
	first, second, third := shown[0], shown[1], shown[2]
	switch {
	case first["password"] == second["password"]:
		w.t.Errorf("the password was changed and does not look so: %v, %v", first, second)
	case first["user"] != second["user"]:
		w.t.Errorf("the user was not changed and looks so: %v, %v", first, second)
	case second["password"] != third["password"]:
		w.t.Errorf("the password was not changed and looks so: %v, %v", second, third)
	}
}
