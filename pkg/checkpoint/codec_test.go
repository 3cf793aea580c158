package checkpoint_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const uid = "5b8f1c34-7a2e-4c8a-9f39-0e1f8f2f4a11"

// entries are the shapes of entries that take different ways through the encoding.
var entries = map[string]checkpoint.Entry{
	"usual":                {UID: uid, RV: "123456", Hash: 1<<63 + 7, Told: true, Entry: "123456", APIVersion: "v1", Kind: "Pod"},
	"modified since":       {UID: uid, RV: "123499", Hash: 7, Told: true, Entry: "123456", APIVersion: "apps/v1", Kind: "Deployment"},
	"only seen":            {UID: uid, RV: "1", Hash: 7, APIVersion: "v1", Kind: "Pod"},
	"re-entered":           {UID: uid, RV: "5", Told: true, Entry: "5.2", APIVersion: "v1", Kind: "Pod"},
	"uid is no UUID":       {UID: "metrics/node-1:cpu", RV: "9", Told: true, Entry: "9", APIVersion: "v1", Kind: "X"},
	"uid in capitals":      {UID: strings.ToUpper(uid), RV: "9", Told: true, Entry: "9"},
	"uid like a UUID":      {UID: "5b8f1c347a2e-4c8a-9f39-0e1f8f2f4a11-", RV: "9"},
	"uid of 36 dashes":     {UID: strings.Repeat("-", 36), RV: "9"},
	"no uid":               {RV: "9", Told: true, Entry: "9"},
	"no rv":                {UID: uid},
	"rv with zeros":        {UID: uid, RV: "007", Entry: "007"},
	"rv 0":                 {UID: uid, RV: "0", Entry: "0"},
	"rv with a sign":       {UID: uid, RV: "+7", Entry: "-7"},
	"rv above 64 bits":     {UID: uid, RV: "18446744073709551616", Entry: "18446744073709551615"},
	"rv is opaque":         {UID: uid, RV: "W/\"a b\x00\"", Entry: "\xff\x01"},
	"rv and entry differ":  {UID: uid, RV: "", Entry: "5"},
	"kind beyond ASCII":    {UID: uid, RV: "9", Entry: "9", APIVersion: "größe.example/v1", Kind: "Größe"},
	"long API version":     {UID: uid, RV: "9", Entry: "9", APIVersion: strings.Repeat("g", 300) + "/v1", Kind: "K"},
	"zero":                 {},
	"first byte looks odd": {UID: "\x01", RV: "\x01", Entry: "\x00"},
}

func TestEntryRoundTrip(t *testing.T) {
	for name, want := range entries {
		t.Run(name, func(t *testing.T) {
			got, err := checkpoint.DecodeEntry(checkpoint.EncodeEntry(want))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A million objects fit in memory and on disk because the usual entry is small.
func TestEntrySize(t *testing.T) {
	if n := len(checkpoint.EncodeEntry(entries["usual"])); n > 40 {
		t.Errorf("the usual entry has %d bytes, want at most 40", n)
	}
}

func genRV() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[0-9]{0,21}`),
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 8), func(b []byte) string { return string(b) }),
	)
}

func genUID() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
		rapid.StringMatching(`[0-9a-fA-F-]{36}`),
		rapid.String(),
	)
}

func TestEntryProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := checkpoint.Entry{
			UID:        genUID().Draw(t, "uid"),
			RV:         genRV().Draw(t, "rv"),
			Hash:       rapid.Uint64().Draw(t, "hash"),
			Told:       rapid.Bool().Draw(t, "told"),
			Entry:      genRV().Draw(t, "entry"),
			APIVersion: rapid.String().Draw(t, "apiVersion"),
			Kind:       rapid.String().Draw(t, "kind"),
		}
		b := checkpoint.EncodeEntry(want)
		got, err := checkpoint.DecodeEntry(b)
		if err != nil || got != want {
			t.Fatalf("%+v came back as %+v, %v", want, got, err)
		}
		// What is cut off before the kind, which is the rest, is noticed.
		cut := rapid.IntRange(0, len(b)-len(want.Kind)-1).Draw(t, "cut")
		if got, err := checkpoint.DecodeEntry(b[:cut]); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Fatalf("cut to %d of %d bytes: %+v, %v", cut, len(b), got, err)
		}
	})
}

func TestPosition(t *testing.T) {
	for text, want := range map[string]event.Position{
		"at 0 12345":                  {RV: "12345"},
		"at 2 12345":                  {Epoch: 2, RV: "12345"},
		"void 0 ":                     {Void: true},
		"void 3 99":                   {Epoch: 3, RV: "99", Void: true},
		"at 18446744073709551615 a b": {Epoch: 1<<64 - 1, RV: "a b"},
		"at 0 ":                       {},
	} {
		if got := string(checkpoint.EncodePosition(want)); got != text {
			t.Errorf("%+v is encoded as %q, want %q", want, got, text)
		}
		if got, err := checkpoint.DecodePosition([]byte(text)); got != want || err != nil {
			t.Errorf("%q is decoded as %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "at", "at 1", "void", "at x 5", "at -1 5", "at 18446744073709551616 5", "gone 1 5", "AT 1 5", " at 1 5", "\x00"} {
		if got, err := checkpoint.DecodePosition([]byte(text)); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("%q is decoded as %+v, %v, want %v", text, got, err, checkpoint.ErrCorrupt)
		}
	}
}

func TestPositionProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := event.Position{
			Epoch: rapid.Uint64().Draw(t, "epoch"),
			RV:    genRV().Draw(t, "rv"),
			Void:  rapid.Bool().Draw(t, "void"),
		}
		if got, err := checkpoint.DecodePosition(checkpoint.EncodePosition(want)); got != want || err != nil {
			t.Fatalf("%+v came back as %+v, %v", want, got, err)
		}
		c := event.Collection{
			Group:         rapid.StringMatching(`([a-z]{1,5}(\.[a-z]{1,5})?)?`).Draw(t, "group"),
			Resource:      rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "resource"),
			Namespace:     rapid.StringMatching(`[a-z-]{0,8}`).Draw(t, "namespace"),
			LabelSelector: rapid.String().Draw(t, "labels"),
		}
		key := checkpoint.PositionKey(c.ID())
		if got := checkpoint.PositionOf(key); got != c.ID() || !bytes.HasPrefix(key, checkpoint.PositionPrefix()) {
			t.Fatalf("position key %q of %q gives %q", key, c.ID(), got)
		}
	})
}

// genName draws what Kubernetes lets an object be called: a path segment. RBAC names
// hold ":" and more.
func genName() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[a-z0-9]([-a-z0-9.]{0,8}[a-z0-9])?`),
		rapid.SampledFrom([]string{"system:node-proxier", "system:controller:job-controller", "*", "a b", "ä:ö", "a\x00b", "e", "i", "!identity", "="}),
	)
}

func TestKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		resource := rapid.SampledFrom([]string{"pods", "clusterroles.rbac.authorization.k8s.io", "widgets.demo.kubebridge.io"}).Draw(t, "resource")
		namespace := rapid.SampledFrom([]string{"", "default", "a", "ab"}).Draw(t, "namespace")
		name, id := genName().Draw(t, "name"), genUID().Draw(t, "uid")

		key := checkpoint.EntryKey(resource, namespace, name)
		if r, ns, n, err := checkpoint.ParseEntryKey(key); r != resource || ns != namespace || n != name || err != nil {
			t.Fatalf("entry key %q gives %q %q %q, %v", key, r, ns, n, err)
		}
		intent := checkpoint.IntentKey(resource, namespace, name, id)
		if r, ns, n, u, err := checkpoint.ParseIntentKey(intent); r != resource || ns != namespace || n != name || u != id || err != nil {
			t.Fatalf("intent key %q gives %q %q %q %q, %v", intent, r, ns, n, u, err)
		}
		for _, p := range []struct{ key, prefix []byte }{
			{key, checkpoint.EntryPrefix(resource, "")},
			{key, checkpoint.EntryPrefix(resource, namespace)},
			{intent, checkpoint.IntentPrefix(resource, "")},
			{intent, checkpoint.IntentPrefix(resource, namespace)},
			{intent, checkpoint.IntentPrefix("", "")},
		} {
			if !bytes.HasPrefix(p.key, p.prefix) {
				t.Fatalf("key %q does not start with %q", p.key, p.prefix)
			}
		}
	})
}

// A prefix must find its own objects only: a foreign one in a reconcile's scan
// would be announced as deleted.
func TestPrefixesKeepApart(t *testing.T) {
	for _, test := range []struct{ key, prefix []byte }{
		{checkpoint.EntryKey("pods", "ab", "x"), checkpoint.EntryPrefix("pods", "a")},
		{checkpoint.EntryKey("podsets", "a", "x"), checkpoint.EntryPrefix("pods", "")},
		{checkpoint.EntryKey("pods.example.io", "a", "x"), checkpoint.EntryPrefix("pods", "")},
		{checkpoint.IntentKey("pods", "ab", "x", uid), checkpoint.IntentPrefix("pods", "a")},
		{checkpoint.IntentKey("pods", "a", "x", uid), checkpoint.EntryPrefix("pods", "a")},
		{checkpoint.EntryKey("pods", "a", "x"), checkpoint.PositionPrefix()},
		{checkpoint.IdentityKey(), checkpoint.PositionPrefix()},
		{checkpoint.MarkKey(), checkpoint.IntentPrefix("", "")},
	} {
		if bytes.HasPrefix(test.key, test.prefix) {
			t.Errorf("prefix %q finds %q", test.prefix, test.key)
		}
	}
	for _, key := range []string{"", "e", "e/", "e/pods", "e/pods/a", "p/pods/a/x", "i/pods/a/x", "x/pods/a/b"} {
		if r, ns, n, err := checkpoint.ParseEntryKey([]byte(key)); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("entry key %q gives %q %q %q, %v", key, r, ns, n, err)
		}
	}
	for _, key := range []string{"", "i", "i/pods/a/x", "e/pods/a/x/" + uid} {
		if r, ns, n, u, err := checkpoint.ParseIntentKey([]byte(key)); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("intent key %q gives %q %q %q %q, %v", key, r, ns, n, u, err)
		}
	}
}

func TestIdentity(t *testing.T) {
	lane := event.Identity{Bridge: "kubebridge", Cluster: "prod", ClusterUID: uid, Sink: "audit"}
	stored := checkpoint.EncodeIdentity(lane)
	renamed, cluster, bridge, sink := lane, lane, lane, lane
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
		"same":            {stored, lane, nil, nil},
		"cluster renamed": {stored, renamed, nil, nil},
		"other cluster":   {stored, cluster, checkpoint.ErrForeign, []string{"cluster UID", uid, `"another"`}},
		"other bridge":    {stored, bridge, checkpoint.ErrForeign, []string{"bridge", `"kubebridge"`, `"second"`}},
		"other sink":      {stored, sink, checkpoint.ErrForeign, []string{"sink", `"audit"`, `"live"`}},
		"newer":           {[]byte(`{"version":4,"identity":{}}`), lane, checkpoint.ErrNewer, []string{"format 4", "reads format 3"}},
		"older":           {[]byte(`{"version":1,"identity":{}}`), lane, checkpoint.ErrOlder, []string{"format 1", "reads format 3"}},
		"none":            {nil, lane, checkpoint.ErrCorrupt, nil},
		"no version":      {[]byte(`{}`), lane, checkpoint.ErrCorrupt, nil},
		"cut off":         {stored[:len(stored)/2], lane, checkpoint.ErrCorrupt, nil},
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

// Whatever a damaged store hands over is an entry or an error, never a panic;
// an entry survives being written again, and is the same whatever it was expected to
// be like.
func FuzzDecodeEntry(f *testing.F) {
	for _, e := range entries {
		f.Add(checkpoint.EncodeEntry(e))
	}
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := checkpoint.DecodeEntry(b)
		if err != nil {
			if !errors.Is(err, checkpoint.ErrCorrupt) || e != (checkpoint.Entry{}) {
				t.Fatalf("%+v, %v", e, err)
			}
			return
		}
		for _, like := range []checkpoint.Entry{{}, e, {UID: e.UID + "x", APIVersion: e.Kind, Kind: e.APIVersion}} {
			if again, err := checkpoint.DecodeEntryLike(checkpoint.EncodeEntry(e), &like); again != e || err != nil {
				t.Fatalf("%+v came back as %+v, %v", e, again, err)
			}
			if again, err := checkpoint.DecodeEntryLike(b, &like); again != e || err != nil {
				t.Fatalf("%x: %+v, and like %+v it is %+v, %v", b, e, like, again, err)
			}
		}
	})
}

func FuzzDecodePosition(f *testing.F) {
	for _, s := range []string{"at 0 12345", "void 3 ", "at 1", "", "at x y"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := checkpoint.DecodePosition(b)
		if err != nil {
			if !errors.Is(err, checkpoint.ErrCorrupt) || p != (event.Position{}) {
				t.Fatalf("%+v, %v", p, err)
			}
			return
		}
		if again, err := checkpoint.DecodePosition(checkpoint.EncodePosition(p)); again != p || err != nil {
			t.Fatalf("%+v came back as %+v, %v", p, again, err)
		}
	})
}

// FuzzRecords: notes, identities and keys of a damaged store are what was written or an
// error, and a key that parses is the key of what it parses to.
func FuzzRecords(f *testing.F) {
	f.Add(checkpoint.EncodeNote(checkpoint.Note{CRD: "c", Lives: 2}))
	f.Add(checkpoint.EncodeIdentity(event.Identity{Bridge: "b", ClusterUID: "u"}))
	f.Add(checkpoint.EntryKey("pods", "a", "b"))
	f.Add(checkpoint.IntentKey("pods", "", "b", uid))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := checkpoint.DecodeNote(b)
		if err != nil {
			if !errors.Is(err, checkpoint.ErrCorrupt) || n != (checkpoint.Note{}) {
				t.Fatalf("%+v, %v", n, err)
			}
		} else if again, err := checkpoint.DecodeNote(checkpoint.EncodeNote(n)); err != nil || !again.Resynced.Equal(n.Resynced) {
			t.Fatalf("%+v came back as %+v, %v", n, again, err)
		}
		if err := checkpoint.CheckIdentity(b, event.Identity{ClusterUID: "u"}); err != nil &&
			!errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrNewer) && !errors.Is(err, checkpoint.ErrOlder) && !errors.Is(err, checkpoint.ErrForeign) {
			t.Fatalf("%q: %v", b, err)
		}
		if resource, namespace, name, err := checkpoint.ParseEntryKey(b); err == nil {
			if again := checkpoint.EntryKey(resource, namespace, name); !bytes.Equal(again, b) || !bytes.Equal(checkpoint.EntryKeyOf(checkpoint.BodyKeyOf(b)), b) {
				t.Fatalf("%q came back as %q", b, again)
			}
		} else if !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Fatal(err)
		}
		if resource, namespace, name, object, err := checkpoint.ParseIntentKey(b); err == nil {
			if again := checkpoint.IntentKey(resource, namespace, name, object); !bytes.Equal(again, b) {
				t.Fatalf("%q came back as %q", b, again)
			}
		} else if !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}
