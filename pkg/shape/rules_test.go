package shape

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

var testKey = []byte("a key of the user")

func mustCompile(t testing.TB, secrets Secrets, rules ...Rule) *Rules {
	t.Helper()
	r, err := Compile(rules, secrets)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var anyHash = regexp.MustCompile(`hmac\+sha256/[0-9a-f]{64}`)

func TestRules(t *testing.T) {
	const deployments, apps = "deployments", "apps"
	applied := func(text string) string {
		q, _ := jsontext.AppendQuote(nil, text)
		return string(q)
	}
	for _, c := range []struct {
		name            string
		rule            Rule
		group, resource string
		raw, want       string
	}{
		{
			"environment of a pod",
			Rule{Preset: PodEnv},
			"", "pods",
			`{"spec":{"initContainers":[{"env":[{"name":"A","value":"x"}]}],"containers":[{"name":"c","env":[{"name":"A","value":"x"},{"name":"B","valueFrom":{"secretKeyRef":{"name":"s"}}}]}],"ephemeralContainers":[{"env":[{"value":""}]}]}}`,
			`{"spec":{"initContainers":[{"env":[{"name":"A","value":"#"}]}],"containers":[{"name":"c","env":[{"name":"A","value":"#"},{"name":"B","valueFrom":{"secretKeyRef":{"name":"s"}}}]}],"ephemeralContainers":[{"env":[{"value":"#"}]}]}}`,
		},
		{
			"of a Deployment",
			Rule{Preset: PodEnv},
			apps, deployments,
			`{"spec":{"template":{"spec":{"containers":[{"env":[{"value":"x"}]}]}}}}`, `{"spec":{"template":{"spec":{"containers":[{"env":[{"value":"#"}]}]}}}}`,
		},
		{
			"of a CronJob",
			Rule{Preset: PodEnv},
			"batch", "cronjobs",
			`{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"env":[{"value":"x"}]}]}}}}}}`, `{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"env":[{"value":"#"}]}]}}}}}}`,
		},
		{
			"of a ControllerRevision",
			Rule{Preset: PodEnv},
			apps, "controllerrevisions",
			`{"data":{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"env":[{"value":"x"}]}]}}}}}`, `{"data":{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"env":[{"value":"#"}]}]}}}}}`,
		},
		{
			"keys of ConfigMaps",
			Rule{Preset: ConfigMapKeys, Keys: "(?i)password|token"},
			"", "configmaps",
			`{"data":{"user":"u","DB_PASSWORD":"p","pass\u0077ord":"q"},"binaryData":{"token":"eA=="}}`, `{"data":{"user":"u","DB_PASSWORD":"#","pass\u0077ord":"#"},"binaryData":{"token":"#"}}`,
		},
		{
			"last applied",
			Rule{Preset: LastApplied},
			apps, deployments,
			`{"metadata":{"annotations":{"a":"1","` + lastApplied + `":"{}","kapp.k14s.io/original":"{}"}}}`, `{"metadata":{"annotations":{"a":"1","` + lastApplied + `":"#","kapp.k14s.io/original":"#"}}}`,
		},
		{
			"the same in what was applied",
			Rule{Paths: []string{"spec.pass"}},
			apps, deployments,
			`{"metadata":{"annotations":{"` + lastApplied + `":` + applied(`{"spec":{"pass":"x","a<b":1}}`+"\n") + `}},"spec":{"pass":"x"}}`,
			`{"metadata":{"annotations":{"` + lastApplied + `":` + applied(`{"spec":{"pass":"#","a<b":1}}`+"\n") + `}},"spec":{"pass":"#"}}`,
		},
		{
			"what was applied is no JSON",
			Rule{Paths: []string{"spec.pass"}},
			apps, deployments,
			`{"metadata":{"annotations":{"` + lastApplied + `":"{\"spec\":{\"pass\":\"x\"","banzaicloud.com/last-applied":{"spec":{"pass":"x"}}}}}`,
			`{"metadata":{"annotations":{"` + lastApplied + `":"redacted","banzaicloud.com/last-applied":"redacted"}}}`,
		},
		{"names twice", Rule{Paths: []string{"a.b"}}, "", "pods", `{"a":{"b":"x","b":"y"},"a":{"b":"z"}}`, `{"a":{"b":"#","b":"#"},"a":{"b":"#"}}`},
		{"values that are no strings", Rule{Paths: []string{"a.*"}}, "", "pods", `{"a":{"b":1.50,"c":{"d":["x"]},"e":[],"f":null,"g":true}}`, `{"a":{"b":"#","c":"#","e":"#","f":"#","g":"#"}}`},
		{"all that is in a text is itself", Rule{Paths: []string{"a.*"}}, "", "pods", `{"a":"x"}`, `{"a":"#"}`},
		{"nothing", Rule{Paths: []string{"a.*"}}, "", "pods", `{"a":null}`, `{"a":null}`},
		{"any depth", Rule{Paths: []string{"**.password"}}, "", "pods", `{"password":1,"a":[{"b":{"password":{"password":2}}}],"c":"password"}`, `{"password":"#","a":[{"b":{"password":"#"}}],"c":"password"}`},
		{"first and last removed", Rule{Paths: []string{"a", "b", "d"}, With: WithRemove}, "", "pods", `{ "a" : 1 , "b":2 , "c":3 , "d":4 }`, `{ "c":3 }`},
		{"all removed", Rule{Paths: []string{"*"}, With: WithRemove}, "", "pods", `{"a":1,"b":[2]}`, `{}`},
		{"elements removed", Rule{Paths: []string{"a[*][~'^x']", "b[*]"}, With: WithRemove}, "", "pods", `{"a":[{"x1":1,"y":2},{"x2":1}],"b":[ 1, 2 ]}`, `{"a":[{"y":2},{}],"b":[  ]}`},
		{
			"identity stays",
			Rule{Paths: []string{"*", "metadata.*", "**.name"}, With: WithRemove},
			"", "pods",
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n","labels":{"a":"b"},"uid":"u","resourceVersion":"7","namespace":"ns"},"spec":{"name":"x"}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n","uid":"u","resourceVersion":"7","namespace":"ns"}}`,
		},
		{
			"an annotation of a Secret that is published otherwise",
			Rule{Paths: []string{`metadata.annotations["meta.helm.sh/release-name"]`}},
			"", "secrets",
			`{"metadata":{"annotations":{"meta.helm.sh/release-name":"a","meta.helm.sh/release-namespace":"b","c":"d"}}}`,
			`{"metadata":{"annotations":{"meta.helm.sh/release-name":"#","meta.helm.sh/release-namespace":"b","c":"#"}}}`,
		},
		{
			"a path into annotations of a Secret",
			Rule{Paths: []string{`metadata.annotations.c.d`}},
			"", "secrets",
			`{"metadata":{"annotations":{"c":"d","e":{"f":"g"}}}}`, `{"metadata":{"annotations":{"c":"#","e":"#"}}}`,
		},
		{
			"all annotations of a Secret",
			Rule{Paths: []string{"metadata.annotations.*"}},
			"", "secrets",
			`{"metadata":{"annotations":{"meta.helm.sh/release-name":"a","c":"d"}}}`, `{"metadata":{"annotations":{"meta.helm.sh/release-name":"#","c":"#"}}}`,
		},
		{
			"everything but the identity",
			Rule{Paths: []string{"*"}},
			"", "pods",
			`{"kind":"Pod","metadata":{"name":"n","annotations":{"a":"b"}},"spec":{}}`, `{"kind":"Pod","metadata":{"name":"n","annotations":"#"},"spec":"#"}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			hash := mustCompile(t, Secrets{Key: testKey}, c.rule).Of(c.group, c.resource)
			got, err := hash.Append([]byte("before "), []byte(c.raw), "ns/name")
			if want := "before " + c.want; err != nil || anyHash.ReplaceAllString(string(got), "#") != want {
				t.Errorf("got  %s, %v\nwant %s", got, err, want)
			}
			plain := mustCompile(t, Secrets{}, c.rule).Of(c.group, c.resource)
			got, err = plain.Apply([]byte(c.raw), "ns/name")
			if want := strings.ReplaceAll(c.want, "#", "redacted"); err != nil || string(got) != want {
				t.Errorf("without a key: got  %s, %v\nwant %s", got, err, want)
			}
		})
	}
}

// If several rules apply to a place, the one that reveals least is applied, regardless of their order.
func TestStrongestRule(t *testing.T) {
	const raw = `{"data":{"a":"YQ=="},"type":"x"}`
	hash, mask, remove := Rule{Paths: []string{"data.a"}}, Rule{Paths: []string{"data.*"}, With: WithMask}, Rule{Paths: []string{"data[~'a']"}, With: WithRemove}
	for _, c := range []struct {
		want  string
		rules []Rule
	}{
		{`{"data":{"a":"#"},"type":"x"}`, nil},
		{`{"data":{"a":"#"},"type":"x"}`, []Rule{hash}},
		{`{"data":{"a":"redacted"},"type":"x"}`, []Rule{mask, hash}},
		{`{"data":{"a":"redacted"},"type":"x"}`, []Rule{hash, mask}},
		{`{"data":{},"type":"x"}`, []Rule{remove, hash, mask}},
	} {
		secrets := Secrets{Key: testKey}
		got, err := mustCompile(t, secrets, c.rules...).Of("", "secrets").Append(nil, []byte(raw), "ns/name")
		if err != nil || anyHash.ReplaceAllString(string(got), "#") != c.want {
			t.Errorf("got %s, %v; want %s", got, err, c.want)
		}
	}
}

// Without rules, a Secret is shaped to the same bytes as by Secrets. Both refuse an object that cannot be parsed.
func TestSecretsAreRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SampledFrom([]string{
			`{"data":{"p":"aHVudGVyMg==","q":7},"stringData":{"p":"hunter2"},"metadata":{"name":"x","annotations":{"a":"b","` + lastApplied + `":"{}"}}}`,
			`{"data":[]}`, `{"data":"x"}`, `{"metadata":{"annotations":7}}`, `null`, `{}`, `[]`, `{"data":null}`,
		}).Draw(t, "raw")
		for _, secrets := range []Secrets{{}, {Key: testKey}} {
			want, wantErr := secrets.Append(nil, []byte(raw), "ns/name")
			rules, err := Compile(nil, secrets)
			if err != nil {
				t.Fatal(err)
			}
			got, err := rules.Of("", "secrets").Append(nil, []byte(raw), "ns/name")
			if (err == nil) != (wantErr == nil) || !bytes.Equal(got, want) {
				t.Fatalf("%s: got %s, %v; Secrets: %s, %v", raw, got, err, want, wantErr)
			}
		}
	})
}

func TestWhichResources(t *testing.T) {
	rules := mustCompile(t, Secrets{}, Rule{Paths: []string{"a"}, Resources: []string{"*.apps", "pods"}}, Rule{Preset: ConfigMapKeys, Keys: "x"})
	for place, want := range map[[2]string]bool{{"", "pods"}: true, {"apps", "x"}: true, {"", "configmaps"}: true, {"", "nodes"}: false, {"x", "configmaps"}: false, {"", "secrets"}: true} {
		if got := rules.Of(place[0], place[1]) != nil; got != want {
			t.Errorf("%v: touched is %t", place, got)
		}
	}
	if mustCompile(t, Secrets{Plain: true}).Of("", "secrets") != nil {
		t.Error("plain Secrets are touched")
	}
	var none *Shaper
	raw := []byte(`{"a":1}`)
	if got, err := none.Append([]byte("x"), raw, ""); err != nil || string(got) != "x"+string(raw) {
		t.Errorf("nil: %s, %v", got, err)
	}
}

func TestWrongRules(t *testing.T) {
	for want, r := range map[string]Rule{
		`it hides nothing: name paths, or one of the presets podEnv, configMapKeys, lastApplied`:  {},
		`"crypt" is not one of hash, mask, remove`:                                                {Paths: []string{"a"}, With: "crypt"},
		`"podenv" is not one of podEnv`:                                                           {Preset: "podenv"},
		`the preset configMapKeys needs keys`:                                                     {Preset: ConfigMapKeys},
		`keys: "(" is no regular expression`:                                                      {Preset: ConfigMapKeys, Keys: "("},
		`is of ConfigMaps alone`:                                                                  {Preset: ConfigMapKeys, Keys: "x", Paths: []string{"spec"}},
		"keys belong to the preset configMapKeys: write a path such as data[~\"":                  {Preset: PodEnv, Keys: "x"},
		`"metadata.name": this stays in every object`:                                             {Paths: []string{"metadata.name"}},
		`"metadata": this stays in every object`:                                                  {Paths: []string{"metadata"}},
		`"a..b", column 3`:                                                                        {Paths: []string{"x", "a..b"}},
		`"Pods" cannot be a resource`:                                                             {Paths: []string{"x"}, Resources: []string{"Pods"}},
		`"apps/deployments": name a resource as kubectl does, for example deployments.v1.apps`:    {Paths: []string{"x"}, Resources: []string{"apps/deployments"}},
		`"*" is no pattern: write *.* for everything`:                                             {Paths: []string{"x"}, Resources: []string{"*"}},
		`"*s.apps" is no pattern`:                                                                 {Paths: []string{"x"}, Resources: []string{"*s.apps"}},
		`"" cannot be a resource`:                                                                 {Paths: []string{"x"}, Resources: []string{""}},
		`"deployments.v1.apps": a rule is for all versions of a resource: write deployments.apps`: {Paths: []string{"x"}, Resources: []string{"deployments.v1.apps"}},
	} {
		if rules, err := Compile([]Rule{{Paths: []string{"fine"}}, r}, Secrets{}); err == nil || rules != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	_, err := Compile([]Rule{{Paths: []string{"a.", "b."}}, {With: "x", Paths: []string{"c."}}}, Secrets{})
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("not every mistake is reported: %v", err)
	}
}

// An object that cannot be parsed is not published, not even a part of it in the error.
func TestWhatCannotBeShaped(t *testing.T) {
	s := mustCompile(t, Secrets{Key: testKey}, Rule{Paths: []string{"a.*", "b"}}).Of("", "pods")
	for _, raw := range []string{``, `["hunter2"]`, `"hunter2"`, `{"a":{"b":"hunter2"}`, `{"x":"hunter2`, `{"a":{"b":hunter2}}`, `{"b":1}{"b":"hunter2"}`, `{"x":1}hunter2`} {
		for name, f := range map[string]func() ([]byte, error){
			"append": func() ([]byte, error) { return s.Append([]byte("x"), []byte(raw), "ns/name") },
			"apply":  func() ([]byte, error) { return s.Apply([]byte(raw), "ns/name") },
		} {
			got, err := f()
			if err == nil || got != nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "redact pods ns/name: ") {
				t.Errorf("%s %s: got %q, %v", name, raw, got, err)
			}
		}
	}
}

// A change of a value changes its hash. Equal values have equal hashes only at the same place of the same object.
func TestHashesOfPaths(t *testing.T) {
	rules := mustCompile(t, Secrets{Key: testKey}, Rule{Paths: []string{"**.v"}})
	hash := func(rules *Rules, resource, where, raw string) string {
		t.Helper()
		out, err := rules.Of("", resource).Append(nil, []byte(raw), where)
		if err != nil {
			t.Fatal(err)
		}
		return anyHash.FindString(string(out))
	}
	base := hash(rules, "pods", "ns/a", `{"a":{"v":"x"}}`)
	for name, same := range map[string]string{
		"other neighbours":    hash(rules, "pods", "ns/a", `{"b":1,"a":{"c":2,"\u0076":"\u0078"}}`),
		"in what was applied": hash(rules, "pods", "ns/a", `{"metadata":{"annotations":{"`+lastApplied+`":"{\"a\":{\"v\":\"x\"}}"}}}`),
	} {
		if same != base {
			t.Errorf("%s: another hash", name)
		}
	}
	seen := map[string]string{base: "the same"}
	other := mustCompile(t, Secrets{Key: []byte("another key")}, Rule{Paths: []string{"**.v"}})
	for name, h := range map[string]string{
		"another value":    hash(rules, "pods", "ns/a", `{"a":{"v":"y"}}`),
		"another object":   hash(rules, "pods", "ns/b", `{"a":{"v":"x"}}`),
		"another resource": hash(rules, "nodes", "ns/a", `{"a":{"v":"x"}}`),
		"another place":    hash(rules, "pods", "ns/a", `{"b":{"v":"x"}}`),
		"an element":       hash(rules, "pods", "ns/a", `{"a":[{"v":"x"}]}`),
		"no name":          hash(rules, "pods", "ns/a", `{"":{"v":"x"}}`),
		"higher up":        hash(rules, "pods", "ns/a", `{"v":"x"}`),
		"another key":      hash(other, "pods", "ns/a", `{"a":{"v":"x"}}`),
		"a number":         hash(rules, "pods", "ns/a", `{"a":{"v":7}}`),
		"its text":         hash(rules, "pods", "ns/a", `{"a":{"v":"7"}}`),
		"an object":        hash(rules, "pods", "ns/a", `{"a":{"v":{"b":1,"a":[2]}}}`),
		"a large number":   hash(rules, "pods", "ns/a", `{"a":{"v":[9007199254740993]}}`),
		"the next one":     hash(rules, "pods", "ns/a", `{"a":{"v":[9007199254740992]}}`),
	} {
		if was, ok := seen[h]; ok {
			t.Errorf("%s hashes like %s", name, was)
		}
		seen[h] = name
	}
	if a, b := hash(rules, "pods", "ns/a", `{"a":{"v":{"b":1,"a":[2]}}}`), hash(rules, "pods", "ns/a", `{"a":{"v":{ "\u0061":[2],"b":1 }}}`); a != b {
		t.Error("an object in another spelling has another hash")
	}
	// Consumers compare these hashes, so their form must never change.
	if want := "hmac+sha256/bb7aa81ccf1e007d3e466d1658667643523b87302d5d35f7010f403c8a328c8e"; base != want {
		t.Errorf("the hash is %s, was %s", base, want)
	}
}

// The checkpoint has the digest of the rules. It must change if and only if the rules hide something else.
func TestDigestOfRules(t *testing.T) {
	digest := func(rules ...Rule) string { return mustCompile(t, Secrets{}, rules...).Digest() }
	a, b := Rule{Paths: []string{"a.b", "c"}, Resources: []string{"x", "y"}}, Rule{Preset: PodEnv}
	if got := digest(); got != "none" {
		t.Errorf("without rules it is %s", got)
	}
	base := digest(a, b)
	for name, same := range map[string]string{
		"another order": digest(b, a), "twice": digest(a, b, a),
		"another spelling": digest(Rule{Paths: []string{"c", `["a"]['b']`, "c"}, Resources: []string{"y", "x"}, With: WithHash}, b),
	} {
		if same != base {
			t.Errorf("%s: another digest", name)
		}
	}
	for name, other := range map[string]string{
		"one less": digest(a), "another action": digest(Rule{Paths: a.Paths, Resources: a.Resources, With: WithMask}, b),
		"other resources": digest(Rule{Paths: a.Paths, Resources: []string{"x"}}, b), "one path more": digest(a, b, Rule{Paths: []string{"d"}}),
	} {
		if other == base {
			t.Errorf("%s: the same digest", name)
		}
	}
	if want := "71d43d8c74b4e276bc8d12b558be9558"; base != want {
		t.Errorf("the digest is %s, was %s: every bridge that is updated declares a reset", base, want)
	}
}

var poolOfPaths = []string{
	`spec`, `spec.a`, `spec.a[*].v`, `spec.*.v`, `**.v`, `spec.**.a`, `*`, `metadata.*`, `metadata.annotations.*`, `**.*.v`, `[~"^s|v"]`, `spec[~"a"][*]`, `**[~"a$"].*`, `metadata.annotations["` + lastApplied + `"]`,
}

// anyJSON makes an object. Unless strict is set, it has white space, escapes and repeated names.
func anyJSON(t *rapid.T, depth int, strict bool) string {
	space := func() string {
		if strict {
			return ""
		}
		return rapid.SampledFrom([]string{"", "", "", " ", "\n\t"}).Draw(t, "space")
	}
	names := []string{"spec", "a", "v", "b", "metadata", "kind", "name"}
	var value func(depth int, names []string, at string) string
	value = func(depth int, names []string, at string) string {
		kind := rapid.IntRange(0, 9).Draw(t, "kind")
		switch {
		case at == "root" || at == "metadata" && kind < 9 || at == "annotations" && kind < 9 || depth > 0 && kind < 4:
			var parts []string
			seen := map[string]bool{}
			if at == "metadata" {
				names = []string{"annotations", "annotations", "name", "v", "a"}
			}
			if at == "annotations" {
				names = []string{lastApplied, "kapp.k14s.io/original", "a", "v"}
			}
			for _, n := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 4).Draw(t, "names") {
				if strict && seen[n] {
					continue
				}
				seen[n] = true
				quoted := `"` + n + `"`
				if !strict && rapid.IntRange(0, 3).Draw(t, "escaped") == 0 {
					quoted = fmt.Sprintf(`"\u%04x%s"`, n[0], n[1:])
				}
				inner := ""
				switch {
				case n == "metadata" && at == "root", n == "annotations" && at == "metadata":
					inner = n
				case at == "annotations" && strings.Contains(n, "/") && depth > 0 && rapid.IntRange(0, 4).Draw(t, "embedded") > 0:
					q, _ := jsontext.AppendQuote(nil, anyJSON(t, depth-1, strict))
					parts = append(parts, space()+quoted+":"+string(q)+space())
					continue
				}
				parts = append(parts, space()+quoted+space()+":"+space()+value(depth-1, []string{"spec", "a", "v", "b"}, inner)+space())
			}
			return "{" + strings.Join(parts, ",") + "}"
		case depth > 0 && kind < 6:
			var parts []string
			for range rapid.IntRange(0, 3).Draw(t, "elements") {
				parts = append(parts, space()+value(depth-1, names, "")+space())
			}
			return "[" + strings.Join(parts, ",") + "]"
		default:
			return rapid.SampledFrom([]string{`"PLANTED"`, `"x"`, `7`, `null`, `true`, `-1.5e3`, `"{\"v\":1"`, `"é<"`}).Draw(t, "scalar")
		}
	}
	return value(depth, names, "root")
}

// For any rules and any object, the result is what a simple implementation of the rules allows, and bytes outside the rules are
// unchanged.
func TestLikeTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		remove := rapid.Bool().Draw(rt, "remove")
		withs := []string{WithHash, WithMask}
		if remove {
			withs = append(withs, WithRemove)
		}
		var rules []Rule
		for _, p := range rapid.SliceOfN(rapid.SampledFrom(poolOfPaths), 1, 3).Draw(rt, "paths") {
			rules = append(rules, Rule{Paths: []string{p}, With: rapid.SampledFrom(withs).Draw(rt, "with")})
		}
		raw := anyJSON(rt, 4, remove)
		likeModel(t, rt, rules, []byte(raw))
	})
}

func likeModel(t *testing.T, f interface{ Fatalf(string, ...any) }, rules []Rule, raw []byte) {
	t.Helper()
	for _, secrets := range []Secrets{{}, {Key: testKey}} {
		compiled := mustCompile(t, secrets, rules...)
		got, err := compiled.Of("", "pods").Append(nil, raw, "ns/name")
		if valid := json.Valid(raw) && strings.ContainsAny(string(bytes.TrimLeft(raw, " \t\r\n")[:1]), "{n"); (err == nil) != valid {
			f.Fatalf("%s: %v; valid is %t", raw, err, valid)
		}
		if err != nil {
			return
		}
		if !json.Valid(got) {
			f.Fatalf("%v of %s: no JSON: %s", rules, raw, got)
		}
		want, _ := runModel(t, compiled.rules, raw, 0)
		if plain := anyHash.ReplaceAllString(string(got), "redacted"); plain != want {
			f.Fatalf("%v of %s:\ngot  %s\nwant %s", rules, raw, plain, want)
		}
	}
}

// FuzzRules has rules without removal, so that everything else can be compared byte by byte.
func FuzzRules(f *testing.F) {
	for i, s := range []string{
		`{"spec":{"a":[{"v":"x"}]}}`, `{"sp\u0065c":{"a":1,"a":{"v":[1,{}]}}}`, `{"metadata":{"annotations":{"` + lastApplied + `":"{\"spec\":{\"a\":\"x\"}}"}}}`, `{"a":"\ud800"}`, `{} {}`, `null`,
	} {
		f.Add(s, uint8(i), uint8(3*i))
	}
	f.Fuzz(func(t *testing.T, raw string, a, b uint8) {
		if len(raw) == 0 || len(raw) > 1<<14 {
			return
		}
		likeModel(t, t, []Rule{{Paths: []string{poolOfPaths[int(a)%len(poolOfPaths)], poolOfPaths[int(b)%len(poolOfPaths)]}}}, []byte(raw))
	})
}

// pods returns pods as an API server sends them, 12 to 16 KB.
func pods(t testing.TB) [][]byte {
	t.Helper()
	text, err := os.ReadFile("../../internal/base/scan/testdata/pods.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for line := range bytes.Lines(text) {
		var frame struct {
			Object json.RawMessage `json:"object"`
		}
		if err := json.Unmarshal(line, &frame); err != nil {
			t.Fatal(err)
		}
		out = append(out, frame.Object)
	}
	return out
}

// A pod that no rule matches is returned in the same memory, without an allocation.
func TestUntouched(t *testing.T) {
	raw := pods(t)[0]
	s := mustCompile(t, Secrets{Key: testKey}, Rule{Paths: []string{"spec.containers[*].nothing", "status.*.none", `metadata.labels[~"^nothing"]`}}).Of("", "pods")
	var got []byte
	var err error
	n := 1.0
	for i := 0; i < 100 && n > 0; i++ { // with the race detector, pools drop some of their items
		n = testing.AllocsPerRun(1, func() { got, err = s.Apply(raw, "ns/name") })
	}
	if err != nil || &got[0] != &raw[0] || len(got) != len(raw) {
		t.Errorf("it is not the same: %v", err)
	}
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A value that is planted in the environment of a real pod, or in its last-applied annotation, is not left anywhere in any
// spelling. The rest of the pod is unchanged.
func TestNoEnvironmentSurvives(t *testing.T) {
	const planted = "PLANTED+hunter2"
	env := `"env":[{"name":"A","value":"PLANTED+hunter2"},{"v\u0061lue":"PLANTED\u002bhunter2","name":"B"},{"name":"C","value":{"x":["PLANTED+hunter2"]},"value":"PLANTED+hunter2"}]`
	for i, pod := range pods(t) {
		with := bytes.ReplaceAll(pod, []byte(`"terminationMessagePath"`), []byte(env+`,"terminationMessagePath"`))
		applied, err := jsontext.AppendQuote(nil, with)
		if err != nil {
			t.Fatal(err)
		}
		raw := bytes.Replace(with, []byte(`"metadata":{`), []byte(`"metadata":{"annotations":{"`+lastApplied+`":`+string(applied)+`},`), 1)
		if bytes.Count(raw, []byte(planted)) < 6 {
			t.Fatalf("pod %d: nothing was planted", i)
		}
		template := append(append([]byte(`{"kind":"Deployment","spec":{"template":`), raw...), "}}"...)
		for _, c := range []struct {
			resource string
			raw      []byte
		}{{"pods", raw}, {"deployments", template}} {
			for _, with := range Withs() {
				s := mustCompile(t, Secrets{Key: testKey}, Rule{Preset: PodEnv, With: with}).Of("", c.resource)
				out, err := s.Append(nil, c.raw, "ns/name")
				if err != nil {
					t.Fatal(err)
				}
				var v any
				if err := json.Unmarshal(out, &v); err != nil {
					t.Fatal(err)
				}
				// The annotations of a pod template are not those of an object, so their value is treated as a text.
				if c.resource == "deployments" {
					delete(v.(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)["metadata"].(map[string]any), "annotations")
					out, _ = json.Marshal(v)
				}
				for _, text := range []string{string(out), fmt.Sprint(v)} {
					if strings.Contains(text, "hunter2") {
						t.Fatalf("pod %d in %s, %s: it survives in %s", i, c.resource, with, text)
					}
				}
			}
		}
	}
}

func BenchmarkShaper(b *testing.B) {
	raw := pods(b)[0]
	for _, c := range []struct {
		name  string
		rules []Rule
	}{
		{"untouched", []Rule{{Paths: []string{"spec.nothing"}}}},
		{"anyDepth", []Rule{{Paths: []string{"**.nothing"}}}},
		{"podEnv", []Rule{{Preset: PodEnv}}},
		{"podEnvMask", []Rule{{Preset: PodEnv, With: WithMask}}},
		{"dropStatus", []Rule{{Paths: []string{"status"}, With: WithRemove}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := mustCompile(b, Secrets{Key: testKey}, c.rules...).Of("", "pods")
			dst := make([]byte, 0, 2*len(raw))
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Append(dst, raw, "ns/name"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
