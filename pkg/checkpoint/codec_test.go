package checkpoint_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const uid = "5b8f1c34-7a2e-4c8a-9f39-0e1f8f2f4a11"

func TestIdentity(t *testing.T) {
	testIdentity := event.Identity{Bridge: "kubebridge", Cluster: "prod", ClusterUID: uid, Sink: "audit"}
	stored := checkpoint.EncodeIdentity(testIdentity)
	renamed, cluster, bridge, sink := testIdentity, testIdentity, testIdentity, testIdentity
	renamed.Cluster = "prod-eu-1"
	cluster.ClusterUID = "another"
	bridge.Bridge = "second"
	sink.Sink = "live"
	for name, test := range map[string]struct {
		stored []byte
		want   event.Identity
		err    error
		says   []string
	}{
		"same":            {stored, testIdentity, nil, nil},
		"cluster renamed": {stored, renamed, nil, nil},
		"other cluster":   {stored, cluster, checkpoint.ErrForeign, []string{"cluster UID", uid, `"another"`}},
		"other bridge":    {stored, bridge, checkpoint.ErrForeign, []string{"bridge", `"kubebridge"`, `"second"`}},
		"other sink":      {stored, sink, checkpoint.ErrForeign, []string{"sink", `"audit"`, `"live"`}},
		"newer":           {[]byte(`{"version":5,"identity":{}}`), testIdentity, checkpoint.ErrNewer, []string{"format 5", "reads format 4"}},
		"older":           {[]byte(`{"version":1,"identity":{}}`), testIdentity, checkpoint.ErrOlder, []string{"format 1", "reads format 4"}},
		"none":            {nil, testIdentity, checkpoint.ErrCorrupt, nil},
		"no version":      {[]byte(`{}`), testIdentity, checkpoint.ErrCorrupt, nil},
		"cut off":         {stored[:len(stored)/2], testIdentity, checkpoint.ErrCorrupt, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkpoint.CheckIdentity(test.stored, test.want)
			if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			for _, part := range test.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

// uids and versions have values for every case of the encoding.
var (
	uids = []string{
		uid, "", "metrics/node-1:cpu", strings.ToUpper(uid), "5b8f1c347a2e-4c8a-9f39-0e1f8f2f4a11-", strings.Repeat("-", 36), "\x01", "\x00",
	}
	versions = []string{
		"123456", "", "0", "007", "+7", "-7", "18446744073709551615", "18446744073709551616", "W/\"a b\x00\"", "\xff\x01", "\x01",
	}
	texts = []string{"", "v1", "größe.example/v1", strings.Repeat("g", 300) + "/v1"}
)

// Decoding returns the encoded values, for any bytes behind them and any value of like.
func TestText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.OneOf(rapid.SampledFrom(uids), rapid.String()).Draw(t, "uid")
		version := rapid.OneOf(rapid.SampledFrom(versions), rapid.String()).Draw(t, "version")
		text, rest := rapid.SampledFrom(texts).Draw(t, "text"), rapid.SampledFrom(texts).Draw(t, "rest")
		like := rapid.SampledFrom([]string{"", id, text, rest, id + "x"}).Draw(t, "like")
		b := checkpoint.AppendText(checkpoint.AppendVersion(checkpoint.AppendUID([]byte{7}, id), version), text)
		d := checkpoint.NewDecoder(append(b, rest...))
		if first, gotID, gotVersion, gotText, gotRest := d.Byte(), d.UID(like), d.Version(), d.Text(like), d.Rest(like); first != 7 ||
			gotID != id || gotVersion != version || gotText != text || gotRest != rest || d.Failed() {
			t.Fatalf("%d %q %q %q %q came back, failed: %t; want 7 %q %q %q %q", first, gotID, gotVersion, gotText, gotRest, d.Failed(), id, version, text, rest)
		}
	})
}

// The usual uid and resourceVersion have a short encoding, because there may be a million of them.
func TestTextSize(t *testing.T) {
	if n := len(checkpoint.AppendUID(nil, uid)); n != 17 {
		t.Errorf("a UUID takes %d bytes, want 17", n)
	}
	if n := len(checkpoint.AppendVersion(nil, "123456")); n > 4 {
		t.Errorf("a resourceVersion takes %d bytes, want at most 4", n)
	}
}

// Decoding damaged data succeeds or fails, without a panic or a large allocation.
func FuzzDecoder(f *testing.F) {
	f.Add(checkpoint.AppendVersion(checkpoint.AppendUID(nil, uid), "7"))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := checkpoint.NewDecoder(b)
		id, version, text, n := d.UID(""), d.Version(), d.Text(""), d.Take(16)
		if d.Failed() && (d.Rest("") != "" || d.Uvarint() != 0) {
			t.Errorf("after an error it goes on: %q %q %q %x", id, version, text, n)
		}
	})
}

// FuzzIdentity: an identity record of a damaged store is refused with one of the errors that end the program.
func FuzzIdentity(f *testing.F) {
	f.Add(checkpoint.EncodeIdentity(event.Identity{Bridge: "b", ClusterUID: "u"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		err := checkpoint.CheckIdentity(b, event.Identity{ClusterUID: "u"})
		for _, e := range []error{nil, checkpoint.ErrCorrupt, checkpoint.ErrNewer, checkpoint.ErrOlder, checkpoint.ErrForeign} {
			if errors.Is(err, e) {
				return
			}
		}
		t.Fatalf("%q: %v", b, err)
	})
}
