package shape_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/internal/base/scan"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

const (
	hidden      = `"redacted"`
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

var hashForm = regexp.MustCompile(`"hmac\+sha256/[0-9a-f]{64}"`)

var keyed = shape.Secrets{Key: []byte("a key of the user")}

func TestSecretsMode(t *testing.T) {
	for want, s := range map[string]shape.Secrets{
		"redacted": {}, "hash": keyed, "plain": {Plain: true, Key: []byte("k")},
	} {
		if got := s.Mode(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := (shape.Secrets{Key: []byte{}}).Mode(); got != "redacted" {
		t.Errorf("an empty key: got %s", got)
	}
}

func TestSecrets(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"data", `{"kind":"Secret","data":{"user":"YWRtaW4=","pass":"aHVudGVyMg=="},"type":"Opaque"}`, `{"kind":"Secret","data":{"user":#,"pass":#},"type":"Opaque"}`},
		{"stringData", `{"stringData":{"pass":"hunter2"}}`, `{"stringData":{"pass":#}}`},
		{"both", `{"data":{"a":"YQ=="},"stringData":{"a":"a"}}`, `{"data":{"a":#},"stringData":{"a":#}}`},
		{
			"annotations", `{"metadata":{"name":"s","annotations":{"meta.helm.sh/release-name":"1","` + lastApplied + `":"{\"data\":{\"p\":\"aHVudGVyMg==\"}}","z":"2",` +
				`"openshift.io/token-secret.value":"eyJ","kubernetes.io/service-account.name":"builder"},"labels":{"z":"3"}},"data":{}}`,
			`{"metadata":{"name":"s","annotations":{"meta.helm.sh/release-name":"1","` + lastApplied + `":#,"z":#,` +
				`"openshift.io/token-secret.value":#,"kubernetes.io/service-account.name":"builder"},"labels":{"z":"3"}},"data":{}}`,
		},
		{"nothing to hide", `{"kind":"Secret","metadata":{"name":"data","labels":{"stringData":"x"}},"type":"Opaque"}`, `{"kind":"Secret","metadata":{"name":"data","labels":{"stringData":"x"}},"type":"Opaque"}`},
		{"null data", `{"data":null,"stringData":null,"metadata":null}`, `{"data":null,"stringData":null,"metadata":null}`},
		{"null annotations", `{"metadata":{"annotations":null}}`, `{"metadata":{"annotations":null}}`},
		{"values that are no strings", `{"data":{"a":null,"b":7,"c":{"d":"x"},"e":["x",["y"]],"f":true}}`, `{"data":{"a":#,"b":#,"c":#,"e":#,"f":#}}`},
		{"white space", "{ \"data\" :\n{ \"a\" : \"YQ==\" ,\t\"b\":\"Yg==\" } , \"type\" : \"x\" }\n", "{ \"data\" :\n{ \"a\" : # ,\t\"b\":# } , \"type\" : \"x\" }\n"},
		{
			"escapes in names", `{"d\u0061ta":{"p":"aHVudGVyMg=="},"string\u0044ata":{"p":"hunter2"},"metad\u0061ta":{"\u0061nnotations":{"kubectl.kubernetes.io\/last-applied-configuration":"hunter2"}}}`,
			`{"d\u0061ta":{"p":#},"string\u0044ata":{"p":#},"metad\u0061ta":{"\u0061nnotations":{"kubectl.kubernetes.io\/last-applied-configuration":#}}}`,
		},
		{
			"names twice", `{"data":{"p":"aHVudGVyMg==","p":"aHVudGVyMg=="},"data":{"p":"aHVudGVyMg=="},"metadata":{},"metadata":{"annotations":{},"annotations":{"` + lastApplied + `":"x"}}}`,
			`{"data":{"p":#,"p":#},"data":{"p":#},"metadata":{},"metadata":{"annotations":{},"annotations":{"` + lastApplied + `":#}}}`,
		},
		{"data elsewhere", `{"spec":{"data":{"p":"x"}},"metadata":{"data":{"p":"x"}}}`, `{"spec":{"data":{"p":"x"}},"metadata":{"data":{"p":"x"}}}`},
		{"no UTF-8", "{\"data\":{\"p\":\"\xff\"},\"x\":\"\xff\"}", "{\"data\":{\"p\":#},\"x\":\"\xff\"}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := shape.Secrets{}.Append([]byte("before "), []byte(c.raw), "ns/name")
			if want := "before " + strings.ReplaceAll(c.want, "#", hidden); err != nil || string(got) != want {
				t.Errorf("redacted: got %s, %v\nwant %s", got, err, want)
			}
			got, err = keyed.Append(nil, []byte(c.raw), "ns/name")
			if want := c.want; err != nil || hashForm.ReplaceAllString(string(got), "#") != want {
				t.Errorf("hashed: got %s, %v\nwant %s", got, err, want)
			}
			got, err = shape.Secrets{Plain: true}.Append([]byte("before "), []byte(c.raw), "ns/name")
			if err != nil || string(got) != "before "+c.raw {
				t.Errorf("plain: got %s, %v", got, err)
			}
		})
	}
}

// A value that cannot be parsed must not be published, and its error must not contain it.
func TestSecretsThatCannotBeRedacted(t *testing.T) {
	const planted = "aHVudGVyMg=="
	for name, raw := range map[string]string{
		"data is a string":        `{"data":"` + planted + `"}`,
		"data is a list":          `{"data":["` + planted + `"]}`,
		"stringData is a number":  `{"stringData":7,"data":{"p":"` + planted + `"}}`,
		"metadata is a list":      `{"metadata":["` + planted + `"]}`,
		"annotations is a string": `{"metadata":{"annotations":"` + planted + `"}}`,
		"no object":               `["` + planted + `"]`,
		"a string":                `"` + planted + `"`,
		"cut off":                 `{"data":{"p":"` + planted + `"}`,
		"cut off in a value":      `{"data":{"p":"` + planted,
		"no JSON":                 `{"data":{"p":` + planted + `}}`,
		"nothing":                 ``,
		"a second value behind":   `{"data":{}}{"data":{"p":"` + planted + `"}}`,
		"garbage behind":          `{"data":{}}` + planted,
	} {
		for _, s := range []shape.Secrets{{}, keyed} {
			got, err := s.Append([]byte("before"), []byte(raw), "ns/name")
			if err == nil || got != nil {
				t.Errorf("%s: got %q, %v", name, got, err)
				continue
			}
			if strings.Contains(err.Error(), planted) {
				t.Errorf("%s: the error contains the value: %v", name, err)
			}
			if !strings.Contains(err.Error(), "redact secret ns/name") {
				t.Errorf("%s: the error does not name the Secret: %v", name, err)
			}
		}
	}
}

// A change of a value changes its hash, the value itself is hidden, and equal values at two places have different hashes.
func TestHashes(t *testing.T) {
	hash := func(s shape.Secrets, where, member, key, value string) string {
		t.Helper()
		out, err := s.Append(nil, fmt.Appendf(nil, `{%q:{%q:%q}}`, member, key, value), where)
		if err != nil {
			t.Fatal(err)
		}
		h := hashForm.FindString(string(out))
		if h == "" {
			t.Fatalf("no hash in %s", out)
		}
		if _, err := base64.StdEncoding.DecodeString(strings.Trim(h, `"`)); err != nil {
			t.Errorf("a client could not decode the Secret's data: %v", err)
		}
		return h
	}
	base := hash(keyed, "ns/a", "data", "p", "aHVudGVyMg==")
	for name, again := range map[string]string{
		"the same":       hash(keyed, "ns/a", "data", "p", "aHVudGVyMg=="),
		"as stringData":  hash(keyed, "ns/a", "stringData", "p", "hunter2"),
		"another escape": hash(keyed, "ns/a", "stringData", "p", "hunter\u0032"),
	} {
		if again != base {
			t.Errorf("%s: another hash", name)
		}
	}
	seen := map[string]string{base: "the same"}
	for name, other := range map[string]string{
		"another value":     hash(keyed, "ns/a", "data", "p", "aHVudGVyMw=="),
		"another member":    hash(keyed, "ns/a", "data", "q", "aHVudGVyMg=="),
		"another Secret":    hash(keyed, "ns/b", "data", "p", "aHVudGVyMg=="),
		"another namespace": hash(keyed, "os/a", "data", "p", "aHVudGVyMg=="),
		"another key":       hash(shape.Secrets{Key: []byte("another")}, "ns/a", "data", "p", "aHVudGVyMg=="),
		"moved borders":     hash(keyed, "ns/ap", "data", "", "aHVudGVyMg=="),
		"more moved":        hash(keyed, "ns/", "data", "ap", "aHVudGVyMg=="),
		"nothing":           hash(keyed, "ns/a", "data", "p", ""),
	} {
		if was, ok := seen[other]; ok {
			t.Errorf("%s hashes like %s", name, was)
		}
		seen[other] = name
	}
	if _, err := base64.StdEncoding.DecodeString(shape.Redacted); err != nil {
		t.Errorf("a client could not decode a redacted Secret's data: %v", err)
	}
}

// anySecret makes a Secret with the planted value in many places and forms. In the first result, a # stands wherever the second
// one has a planted value that must not be published.
func anySecret(t *rapid.T, planted string) (mask, raw string) {
	space := func() string { return rapid.SampledFrom([]string{"", "", "", " ", "\n\t"}).Draw(t, "space") }
	b64 := base64.StdEncoding.EncodeToString([]byte(planted))
	var escaped strings.Builder
	for _, r := range planted {
		fmt.Fprintf(&escaped, `\u%04x`, r)
	}
	value := rapid.SampledFrom([]string{
		`"` + planted + `"`, `"` + b64 + `"`, `"` + escaped.String() + `"`, `"x` + planted + `x"`,
		`{"data":"` + planted + `"}`, `["` + b64 + `",{"a":"` + planted + `"}]`, `"{\"data\":{\"p\":\"` + b64 + `\"}}"`,
		`"\u003c\"}` + planted + `"`,
	})
	harmless := rapid.SampledFrom([]string{`"x"`, `{"data":{"a":"YQ=="},"z":[{}]}`, `[1, 2]`, `null`, `-1.5e3`, `"\"data\":{"`, `"}"`, `{ }`})
	type part struct{ mask, raw string }
	object := func(label string, names []string, f func(name string) part) part {
		var members []part
		for i, n := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 4).Draw(t, label) {
			quoted := `"` + n + `"`
			if rapid.IntRange(0, 3).Draw(t, "escaped") == 0 {
				quoted = fmt.Sprintf(`"\u%04x%s"`, n[0], n[1:])
			}
			p, sep := f(n), ","
			if i == 0 {
				sep = ""
			}
			head := sep + space() + quoted + space() + ":" + space()
			tail := space()
			members = append(members, part{head + p.mask + tail, head + p.raw + tail})
		}
		out := part{"{", "{"}
		for _, m := range members {
			out.mask += m.mask
			out.raw += m.raw
		}
		return part{out.mask + "}", out.raw + "}"}
	}
	same := func(string) part { v := harmless.Draw(t, "harmless"); return part{v, v} }
	hide := func(string) part { return part{"#", value.Draw(t, "value")} }
	whole := object("members", []string{"kind", "type", "data", "stringData", "metadata", "spec"}, func(name string) part {
		switch name {
		case "data", "stringData":
			if rapid.IntRange(0, 4).Draw(t, "null") == 0 {
				return part{"null", "null"}
			}
			return object("keys", []string{"p", "tls.key", "data", "é"}, hide)
		case "metadata":
			return object("metadata", []string{"name", "annotations", "labels"}, func(name string) part {
				if name != "annotations" {
					return same(name)
				}
				return object("annotations", []string{"a", lastApplied, "argocd.argoproj.io/tracking-id"}, func(name string) part {
					if slices.Contains(shape.PlainAnnotations(), name) {
						return same(name)
					}
					return hide(name)
				})
			})
		default:
			return same(name)
		}
	})
	return whole.mask, whole.raw
}

// A planted value is not left anywhere, in any spelling, and all other bytes are unchanged.
func TestNoSecretSurvives(t *testing.T) {
	const planted = "PLANTED+hunter2"
	b64 := base64.StdEncoding.EncodeToString([]byte(planted))
	rapid.Check(t, func(t *rapid.T) {
		mask, raw := anySecret(t, planted)
		for _, s := range []shape.Secrets{{}, keyed} {
			out, err := s.Append(nil, []byte(raw), "ns/name")
			if err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			if !json.Valid(out) {
				t.Fatalf("%s: not JSON: %s", raw, out)
			}
			var v any
			if err := json.Unmarshal(out, &v); err != nil {
				t.Fatal(err)
			}
			plain := fmt.Sprint(v)
			for _, form := range []string{planted, b64} {
				if bytes.Contains(out, []byte(form)) || strings.Contains(plain, form) {
					t.Fatalf("%s: %s survives in %s", raw, form, out)
				}
			}
			got := hashForm.ReplaceAllString(strings.ReplaceAll(string(out), hidden, "#"), "#")
			if got != mask {
				t.Fatalf("%s:\ngot  %s\nwant %s", raw, got, mask)
			}
		}
	})
}

// FuzzSecrets compares the redacted form of any Secret with a result made by encoding/json.
func FuzzSecrets(f *testing.F) {
	for _, s := range []string{`{"data":{"a":"YQ=="}}`, `{"d\u0061ta":{"a":1},"stringData":null}`, `{"metadata":{"annotations":{"` + lastApplied + `":{}}}}`, `{"data":[]}`, `{} {}`, `null`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		out, err := shape.Secrets{}.Append(nil, []byte(raw), "w")
		if err != nil {
			if out != nil {
				t.Errorf("%s: %v and yet %s", raw, err, out)
			}
			return
		}
		var v map[string]any
		if err := json.Unmarshal(out, &v); err != nil {
			if json.Valid([]byte(raw)) {
				t.Errorf("%s became %s: %v", raw, out, err)
			}
			return // jsontext accepts some texts that encoding/json refuses
		}
		for _, name := range []string{"data", "stringData"} {
			members, ok := v[name].(map[string]any)
			if v[name] != nil && !ok {
				t.Errorf("%s: %s is no object in %s", raw, name, out)
			}
			for k, value := range members {
				if value != "redacted" {
					t.Errorf("%s: %s.%s survives in %s", raw, name, k, out)
				}
			}
		}
		metadata, _ := v["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		for name, value := range annotations {
			if value != "redacted" && !slices.Contains(shape.PlainAnnotations(), name) {
				t.Errorf("%s: the annotation %s survives in %s", raw, name, out)
			}
		}
	})
}

// What was redacted stays redacted, even if the rest does not fit.
func TestHeadOfASecret(t *testing.T) {
	const planted = "PLANTED+hunter2"
	rapid.Check(t, func(t *rapid.T) {
		_, raw := anySecret(t, planted)
		redacted, err := keyed.Append(nil, []byte(raw), "ns/name")
		if err != nil {
			t.Fatal(err)
		}
		head, err := scan.AppendHead(nil, redacted, event.MaxLevels)
		if err != nil {
			t.Fatalf("%s: %v", redacted, err)
		}
		var v map[string]any
		if err := json.Unmarshal(head, &v); err != nil {
			t.Fatalf("%s became %s: %v", redacted, head, err)
		}
		for name := range v {
			if name != "kind" && name != "metadata" && name != "apiVersion" {
				t.Fatalf("%s is left in %s", name, head)
			}
		}
		if strings.Contains(fmt.Sprint(v), planted) {
			t.Fatalf("%s survives in %s", planted, head)
		}
	})
}
