package shape_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

func headers(t *testing.T, templates map[string]string) shape.Headers {
	t.Helper()
	h, err := shape.ParseHeaders(templates)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A header is absent if its value is not known. Its value is that of the published body, so that it never shows
// a value that is hidden there.
func TestHeaders(t *testing.T) {
	h := headers(t, map[string]string{
		"x-fixed": "always",
		"x-who":   "{cluster}/{group}/{resource}/{namespace}",
		"X-Kind":  "{kind} {version} {type} {uid}",
		"x-team":  "{label:acme.io/team}",
		"x-both":  "{label:acme.io/team}-{annotation:note}",
		"x-entry": "{entry}",
	})
	pod := shape.Values{Cluster: "c", Resource: "pods", Namespace: "n", Name: "p", Kind: "Pod", Version: "v1", Type: "added", UID: "u"}
	for name, c := range map[string]struct {
		v          shape.Values
		body, want string
	}{
		"both":                   {pod, `{"kind":"Pod","metadata":{"annotations":{"other":"x","note":"a\u00e9\"b"},"labels":{"acme.io/team":"pay"}},"spec":{"metadata":1}}`, "X-Kind=Pod v1 added u|x-both=pay-aé\"b|x-fixed=always|x-team=pay|x-who=c/core/pods/n"},
		"no note":                {pod, `{"metadata":{"labels":{"a":"b","acme.io/team":""}}}`, "X-Kind=Pod v1 added u|x-fixed=always|x-team=|x-who=c/core/pods/n"},
		"none":                   {pod, `{"metadata":{"labels":null,"annotations":{}}}`, "X-Kind=Pod v1 added u|x-fixed=always|x-who=c/core/pods/n"},
		"elsewhere":              {pod, `{"spec":{"metadata":{"labels":{"acme.io/team":"no"}}}}`, "X-Kind=Pod v1 added u|x-fixed=always|x-who=c/core/pods/n"},
		"no text":                {pod, `{"metadata":{"labels":{"acme.io/team":1}}}`, "X-Kind=Pod v1 added u|x-fixed=always|x-who=c/core/pods/n"},
		"long":                   {pod, `{"metadata":{"labels":{"acme.io/team":"` + strings.Repeat("x", 1025) + `"}}}`, "X-Kind=Pod v1 added u|x-fixed=always|x-who=c/core/pods/n"},
		"unknown":                {pod, "", "X-Kind=Pod v1 added u|x-fixed=always|x-who=c/core/pods/n"},
		"an entry":               {shape.Values{Cluster: "c", Group: "apps", Resource: "deployments", Type: "gap", Entry: "canary"}, "", "x-entry=canary|x-fixed=always"},
		"an entry of namespaces": {shape.Values{Cluster: "c", Group: "apps", Resource: "deployments", Type: "gap", Entry: "canary@"}, "", "x-entry=canary|x-fixed=always"},
		"namespaces, no name":    {shape.Values{Cluster: "c", Group: "apps", Resource: "deployments", Type: "gap", Entry: "@"}, "", "x-fixed=always"},
		"collection":             {shape.Values{Cluster: "c", Group: "apps", Resource: "deployments", Type: "gap"}, "", "x-fixed=always"},
	} {
		var got []string
		var body []byte
		if c.body != "" {
			body = []byte(c.body)
		}
		for _, a := range h.Append(nil, c.v, body, new(event.Text)) {
			got = append(got, a.Name+"="+a.Value)
		}
		if diff := cmp.Diff(c.want, strings.Join(got, "|")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A header of a resource replaces the sink's header of that name, ignoring case.
func TestHeadersWith(t *testing.T) {
	h := headers(t, map[string]string{"x-team": "all", "x-cluster": "{cluster}"}).
		With(headers(t, map[string]string{"X-Team": "{label:team}", "x-more": "{annotation:more}"}))
	var got []string
	for _, a := range h.Append(nil, shape.Values{Cluster: "c"}, []byte(`{"metadata":{"labels":{"team":"pay"},"annotations":{"more":"yes"}}}`), new(event.Text)) {
		got = append(got, a.Name+"="+a.Value)
	}
	if diff := cmp.Diff([]string{"x-cluster=c", "X-Team=pay", "x-more=yes"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if h.Len() != 3 {
		t.Errorf("%d headers", h.Len())
	}
}

func TestHeadersThatAreWrong(t *testing.T) {
	many := map[string]string{}
	for i := range shape.MaxHeaders + 1 {
		many[fmt.Sprintf("x%02d", i)] = "x"
	}
	for _, c := range []struct {
		templates map[string]string
		want      string
	}{
		{map[string]string{"Content-Type": "x"}, "Content-Type: content-type, and what begins"},
		{map[string]string{"ce_id": "x"}, "ce_id: content-type, and what begins"},
		{map[string]string{"CE-type": "x"}, "the bridge's own"},
		{map[string]string{"Nats-Msg-Id": "x"}, "the bridge's own"},
		{map[string]string{"kubebridge-state": "x"}, "the bridge's own"},
		{map[string]string{"x y": "x"}, "x y: a header's name has letters"},
		{map[string]string{"": "x"}, ": a header's name has letters"},
		{map[string]string{"x\n": "x"}, "a header's name has letters"},
		{map[string]string{"x": "{nope}"}, `x: template "{nope}": {nope} is not one of`},
		{map[string]string{"x-a": "1", "X-A": "2"}, "x-a: it is there twice"},
		{many, "x16: it is one of 17 headers, 16 are the most"},
	} {
		if _, err := shape.ParseHeaders(c.templates); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.templates, err, c.want)
		}
	}
}
