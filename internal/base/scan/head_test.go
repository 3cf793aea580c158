package scan_test

import (
	"testing"

	"github.com/kubebridge/kubebridge/internal/base/scan"
)

func TestAppendHead(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{
			"the usual", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"u","labels":{"x":"y"},"annotations":{"big":"…"},"ownerReferences":[{"uid":"o"}],"managedFields":[1]},"spec":{"a":1},"status":{}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"u","labels":{"x":"y"},"ownerReferences":[{"uid":"o"}]}}`,
		},
		{"another order", `{"spec":1,"metadata":{"annotations":{},"name":"a"},"kind":"Pod","apiVersion":"v1"}`, `{"metadata":{"name":"a"},"kind":"Pod","apiVersion":"v1"}`},
		{"nothing to keep", `{"spec":1,"status":{"kind":"x","metadata":{}}}`, `{}`},
		{"levels", `{"kind":"Pod","apiVersion":[[[[]]]],"metadata":{"name":"a","labels":{"x":{}},"others":{"x":[1,{}]},"uid":"u"},"spec":[[[[[[]]]]]]}`, `{"kind":"Pod","metadata":{"name":"a","labels":{"x":{}},"uid":"u"}}`},
		{"an empty metadata", `{"metadata":{},"kind":"Pod"}`, `{"metadata":{},"kind":"Pod"}`},
		{"a metadata of annotations", `{"metadata":{"annotations":{"a":"b"}},"kind":"Pod"}`, `{"metadata":{},"kind":"Pod"}`},
		{"a null metadata", `{"kind":"Pod","metadata":null}`, `{"kind":"Pod","metadata":{}}`},
		{"white space", "{ \"kind\" : \"Pod\" ,\n\"metadata\" : { \"labels\" : { \"x\" : \"y\" } , \"annotations\" : 1 } }", `{"kind":"Pod","metadata":{"labels":{ "x" : "y" }}}`},
		{"escapes in names", `{"k\u0069nd":"P\u006fd","metadata":{"annot\u0061tions":{"big":1},"n\u0061me":"a"}}`, `{"kind":"P\u006fd","metadata":{"name":"a"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := scan.AppendHead([]byte("before{"), []byte(c.raw), 4)
			if err != nil || string(got) != "before{"+c.want {
				t.Errorf("got %s, %v\nwant before{%s", got, err, c.want)
			}
		})
	}
	for _, raw := range []string{``, `[]`, `"x"`, `{`, `{"kind":`, `{"metadata":7}`, `{"metadata":{"name":"a"}`, `{"spec":{]}`} {
		if got, err := scan.AppendHead([]byte("before"), []byte(raw), 4); err == nil || got != nil {
			t.Errorf("%s: got %s, %v", raw, got, err)
		}
	}
}
