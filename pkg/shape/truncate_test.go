package shape_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/shape"
)

func TestAppendHead(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{
			"the usual", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"u","labels":{"x":"y"},"annotations":{"big":"…"},"ownerReferences":[{"uid":"o"}],"managedFields":[1]},"spec":{"a":1},"status":{}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"u","labels":{"x":"y"},"ownerReferences":[{"uid":"o"}]}}`,
		},
		{"another order", `{"spec":1,"metadata":{"annotations":{},"name":"a"},"kind":"Pod","apiVersion":"v1"}`, `{"metadata":{"name":"a"},"kind":"Pod","apiVersion":"v1"}`},
		{"nothing to keep", `{"spec":1,"status":{"kind":"x","metadata":{}}}`, `{}`},
		{"an empty metadata", `{"metadata":{},"kind":"Pod"}`, `{"metadata":{},"kind":"Pod"}`},
		{"a metadata of annotations", `{"metadata":{"annotations":{"a":"b"}},"kind":"Pod"}`, `{"metadata":{},"kind":"Pod"}`},
		{"a null metadata", `{"kind":"Pod","metadata":null}`, `{"kind":"Pod","metadata":{}}`},
		{"white space", "{ \"kind\" : \"Pod\" ,\n\"metadata\" : { \"labels\" : { \"x\" : \"y\" } , \"annotations\" : 1 } }", `{"kind":"Pod","metadata":{"labels":{ "x" : "y" }}}`},
		{"escapes in names", `{"k\u0069nd":"P\u006fd","metadata":{"annot\u0061tions":{"big":1},"n\u0061me":"a"}}`, `{"kind":"P\u006fd","metadata":{"name":"a"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := shape.AppendHead([]byte("before{"), []byte(c.raw))
			if err != nil || string(got) != "before{"+c.want {
				t.Errorf("got %s, %v\nwant before{%s", got, err, c.want)
			}
		})
	}
	for _, raw := range []string{``, `[]`, `"x"`, `{`, `{"kind":`, `{"metadata":7}`, `{"metadata":{"name":"a"}`, `{"spec":{]}`} {
		if got, err := shape.AppendHead([]byte("before"), []byte(raw)); err == nil || got != nil {
			t.Errorf("%s: got %s, %v", raw, got, err)
		}
	}
}

// What was redacted stays redacted, whatever does not fit.
func TestHeadOfASecret(t *testing.T) {
	const planted = "PLANTED+hunter2"
	rapid.Check(t, func(t *rapid.T) {
		_, raw := anySecret(t, planted)
		redacted, err := keyed.Append(nil, []byte(raw), "ns/name")
		if err != nil {
			t.Fatal(err)
		}
		head, err := shape.AppendHead(nil, redacted)
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
