package shape

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// ignoring returns a function that hashes an object without the ignored paths.
func ignoring(t testing.TB, list ...string) func(raw string) string {
	t.Helper()
	i, err := CompileIgnore(list)
	if err != nil {
		t.Fatal(err)
	}
	return func(raw string) string {
		t.Helper()
		h := sha256.New()
		if err := i.Hash(h, []byte(raw)); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		return hex.EncodeToString(h.Sum(nil))
	}
}

// The digest changes if and only if a value that is not ignored changes.
func TestIgnore(t *testing.T) {
	const node = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","resourceVersion":"7","generation":3},"status":{"conditions":[{"lastHeartbeatTime":"a","type":"Ready","status":"True"}]}}`
	for _, c := range []struct {
		name   string
		ignore []string
		a, b   string
		same   bool
	}{
		{"a heartbeat", []string{"status-heartbeats"}, node, strings.NewReplacer(`"a"`, `"b"`, `"7"`, `"8"`).Replace(node), true},
		{"a condition beside it", []string{"status-heartbeats"}, node, strings.NewReplacer(`"a"`, `"b"`, "True", "False").Replace(node), false},
		{"a heartbeat that counts", []string{"leases"}, node, strings.ReplaceAll(node, `"a"`, `"b"`), false},
		{"a renewal", []string{"leases"}, `{"spec":{"holderIdentity":"x","renewTime":"1"}}`, `{"spec":{"holderIdentity":"x","renewTime":"2"}}`, true},
		{"another holder", []string{"leases"}, `{"spec":{"holderIdentity":"x","renewTime":"1"}}`, `{"spec":{"holderIdentity":"y","renewTime":"2"}}`, false},
		{"metadata only", []string{"metadata-only"}, node, strings.NewReplacer(`"7"`, `"8"`, `:3`, `:4`, `"name"`, `"managedFields":[{"manager":"m"}],"name"`).Replace(node), true},
		{"a label", []string{"metadata-only"}, `{"metadata":{"name":"n"}}`, `{"metadata":{"name":"n","labels":{"a":"b"}}}`, false},
		{"listed or watched", []string{"status"}, `{"metadata":{"name":"n"},"kind":"Node","apiVersion":"v1"}`, node, true},
		{"another apiVersion", nil, `{"apiVersion":"x/v1","spec":1}`, `{"apiVersion":"x/v2","spec":1}`, true},
		{"the first ignored annotation", []string{`metadata.annotations["a.b/c"]`}, `{"metadata":{"name":"n"},"x":1}`, `{"metadata":{"annotations":{"a.b/c":"1"},"name":"n"},"x":1}`, true},
		{"one beside others", []string{`metadata.annotations["a.b/c"]`}, `{"metadata":{"annotations":{"z":"1"}}}`, `{"metadata":{"annotations":{"a.b/c":"1","z":"1"}}}`, true},
		{"another one", []string{`metadata.annotations["a.b/c"]`}, `{"metadata":{"name":"n"}}`, `{"metadata":{"annotations":{"a.b/d":"1"},"name":"n"}}`, false},
		{"an element that holds nothing else", []string{"a[*].t"}, `{"a":[{"t":1},{"t":2,"u":1},{"t":3}],"b":1}`, `{"a":[{"t":5,"u":1}],"b":1}`, true},
		{"nested ones", []string{"a.b.c[*].d"}, `{"a":{"b":{"c":[{"d":1},{"d":2}]}},"z":1}`, `{"z":1}`, true},
		{"names twice", []string{"a"}, `{"a":1,"b":2,"\u0061":3}`, `{"b":2}`, true},
		{"an empty list is no absent one", []string{"a.b"}, `{"a":{},"z":1}`, `{"z":1}`, false},
	} {
		d := ignoring(t, c.ignore...)
		if (d(c.a) == d(c.b)) != c.same {
			t.Errorf("%s: that the digests are equal is not %t", c.name, c.same)
		}
	}
}

// The hashed bytes must never change, because digests of earlier versions are stored in checkpoints.
func TestHashedBytesStay(t *testing.T) {
	const raw = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n","resourceVersion":"7","managedFields":[]},"spec":{"a":[1,2]},"status":{"t":"x","u":{"t":1}}}`
	for ignore, rest := range map[string]string{
		"metadata-only": `{"metadata":{"name":"n"},"spec":{"a":[1,2]},"status":{"t":"x","u":{"t":1}}}`,
		"status.**.t":   `{"metadata":{"name":"n"},"spec":{"a":[1,2]}}`,
		"spec.a[*]":     `{"metadata":{"name":"n"},"status":{"t":"x","u":{"t":1}}}`,
	} {
		want := sha256.Sum256([]byte(rest))
		if got := ignoring(t, ignore)(raw); got != hex.EncodeToString(want[:]) {
			t.Errorf("%s: what is hashed is not %s", ignore, rest)
		}
	}
}

func TestWrongIgnore(t *testing.T) {
	for text, want := range map[string]string{
		"status.":       `"status.", column 8: the end where`,
		"metadata":      `"metadata": without this, objects cannot be distinguished`,
		"metadata.name": `"metadata.name": without`,
		"status hearts": `"status hearts", column 7`,
	} {
		if _, err := CompileIgnore([]string{"spec", text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	i, err := CompileIgnore(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{``, `[]`, `{"a":1`, `{}{}`} {
		h := sha256.New()
		if err := i.Hash(h, []byte(raw)); err == nil || !bytes.Equal(h.Sum(nil), sha256.New().Sum(nil)) {
			t.Errorf("%s: %v, %x", raw, err, h.Sum(nil))
		}
	}
}

func BenchmarkIgnore(b *testing.B) {
	raw := pods(b)[0]
	i, err := CompileIgnore([]string{"status-heartbeats"})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	h := xxhash.New()
	for b.Loop() {
		h.Reset()
		if err := i.Hash(h, raw); err != nil {
			b.Fatal(err)
		}
	}
}

// A heartbeat of a real pod does not change the digest.
func TestIgnoreRealPods(t *testing.T) {
	d := ignoring(t, "status-heartbeats")
	for _, raw := range pods(t) {
		beat := bytes.ReplaceAll(raw, []byte(`"lastProbeTime":null`), []byte(`"lastProbeTime":"2026-11-21T01:39:50Z"`))
		if bytes.Equal(raw, beat) || d(string(raw)) != d(string(beat)) {
			t.Error("a heartbeat is a change, or the pod has none")
		}
	}
}
