package shape

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzRoutes: two objects have the same subject or key only if the template lacks
// the values that distinguish them; and no object has the subject of a collection event.
func FuzzRoutes(f *testing.F) {
	f.Add("", "pods", "a", "b", "", "pods", "a.b", "")
	f.Add("apps", "deployments", "_", "=2E", "apps", "deployments", "", ".")
	f.Add("", "roles", "a", "*.>", "", "roles", "a", "=2A=2E=3E")
	f.Add("", "nodes", "", "_collection", "", "nodes", ".collection", "gap")
	subject, err := ParseTemplate("k8s.{cluster}.{group}.{resource}.{namespace}.{name}", SubjectNames)
	if err != nil {
		f.Fatal(err)
	}
	key, err := ParseTemplate(DefaultKey, KeyNames)
	if err != nil {
		f.Fatal(err)
	}
	topic, err := ParseTemplate("k8s.{cluster}.{group}.{resource}", TopicNames)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, group, resource, namespace, name, group2, resource2, namespace2, name2 string) {
		a := Values{Cluster: "c", Group: group, Resource: resource, Namespace: namespace, Name: name}
		b := Values{Cluster: "c", Group: group2, Resource: resource2, Namespace: namespace2, Name: name2}
		if a.Group == "core" || b.Group == "core" || !utf8.ValidString(name) || !utf8.ValidString(name2) {
			return // no object has these values
		}
		same := a == b
		if (subject.Subject(a) == subject.Subject(b)) != same {
			t.Fatalf("%+v and %+v: %s, %s", a, b, subject.Subject(a), subject.Subject(b))
		}
		for _, kind := range []string{"reset", "gap", "synced"} {
			if subject.EntryCollectionSubject(b, kind) == subject.Subject(a) {
				t.Fatalf("%+v has the subject of the %s of %+v", a, kind, b)
			}
		}
		if got := subject.Subject(a); strings.Count(got, ".") != 5 || strings.ContainsAny(got, "*> \t\r\n\x00") {
			t.Fatalf("%+v: %q", a, got)
		}
		if !kubernetes(a) || !kubernetes(b) {
			return
		}
		if k := string(key.AppendKey(nil, a)) == string(key.AppendKey(nil, b)); k != same {
			t.Fatalf("%+v and %+v: %s, %s", a, b, key.AppendKey(nil, a), key.AppendKey(nil, b))
		}
		if got := topic.Topic(a) == topic.Topic(b); got != (group == group2 && resource == resource2) {
			t.Fatalf("%+v and %+v: %s, %s", a, b, topic.Topic(a), topic.Topic(b))
		}
	})
}

// kubernetes reports whether an API server may have such an object: a resource and a
// namespace are DNS labels, and a name is a segment of a path.
func kubernetes(v Values) bool {
	return v.Resource != "" && v.Name != "" && v.Namespace != "_" &&
		!strings.ContainsAny(v.Resource, "./") && !strings.ContainsAny(v.Namespace+v.Name+v.Group, "/")
}

// FuzzPlanted: the redacted Secret does not contain any of its values, in any
// spelling, and all other bytes are unchanged.
func FuzzPlanted(f *testing.F) {
	f.Add(`{"kind":"Secret","metadata":{"name":"n"}`, "k", []byte("hunter2"), `"type":"Opaque"}`)
	f.Add(`{"a":[1,{"data":2}]`, "\x00\u009b", []byte{0xff}, `"immutable":true}`)
	f.Fuzz(func(t *testing.T, before, name string, value []byte, after string) {
		if len(value) < 6 || !json.Valid([]byte(before+"}")) || !json.Valid([]byte("{"+after)) || !strings.HasPrefix(before, "{\"") {
			return
		}
		planted := "PLANTED" + base64.StdEncoding.EncodeToString(value)
		member, err := json.Marshal(map[string]string{name: planted})
		if err != nil {
			t.Fatal(err)
		}
		for _, spelt := range []string{planted, `\u0050` + planted[1:]} {
			raw := before + `,"data":` + strings.Replace(string(member), planted, spelt, 1) + "," + after
			for _, s := range []Secrets{{}, {Key: testKey}} {
				out, err := s.Append(nil, []byte(raw), "ns/n")
				if err != nil {
					if out != nil {
						t.Fatalf("%s: %v and yet %s", raw, err, out)
					}
					continue // the value is left out
				}
				if strings.Contains(string(out), planted[1:]) {
					t.Fatalf("%s became %s", raw, out)
				}
				if json.Valid([]byte(raw)) && !json.Valid(out) {
					t.Fatalf("%s became %s, which is no JSON", raw, out)
				}
				if strings.Contains(before+after, `ata`) || strings.Contains(before+after, `\u`) || strings.Contains(before+after, lastApplied) {
					continue // more than the planted values is hidden
				}
				if !strings.HasPrefix(string(out), before+`,"data":`) || !strings.HasSuffix(string(out), ","+after) {
					t.Fatalf("%s became %s: what is not hidden has changed", raw, out)
				}
			}
		}
	})
}
