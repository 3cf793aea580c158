// Package feed is an API server that replays captured objects under new names,
// UIDs and resourceVersions, as fast as a client reads or at a set rate. It
// speaks the protocol as kube-apiserver does: discovery, paged and exact LIST,
// WATCH from a resourceVersion with bookmarks, WatchList, metadata only, 410.
package feed

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/bench/internal/corpus"
	"github.com/kubebridge/kubebridge/bench/internal/mark"
)

// baseRV is the resourceVersion before the first event; event i has baseRV+1+i.
const baseRV = 2000000000

// Resource is a served resource. Its history is a function of the event's index, so
// the server does not store it: event i is about object i modulo Objects.
type Resource struct {
	Group, Version, Plural, Kind string
	Custom                       bool // of a CRD: listed items have kind and apiVersion

	Events  uint64 // number of events after the initial objects
	Objects uint64 // number of objects that the events are about, in turn
	Initial uint64 // number of objects that exist before the first event
	Silent  uint64 // number of first events that are not sent, like those of another resource: only the resourceVersion increases
	First   uint64 // sequence number of the first mark, so that resources do not share any
	// Distinct makes the objects differ as those of a cluster do, so that they compress no better. Otherwise only their names, UIDs and
	// versions differ.
	Distinct bool
	Lives    uint64 // number of events of an object from ADDED to DELETED, at least 2; 0: no object is deleted

	templates []*template
	rate      float64   // events per second
	begun     time.Time // set before the first event
}

func (r *Resource) apiVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// template is a captured object, with the positions of the parts that differ between
// events.
type template struct {
	object                            []byte
	gvk                               int // number of bytes of kind and apiVersion after the opening brace
	name, namespace, uid, rv, mark, m int
	end                               int   // end of the value of metadata, which begins at m
	runs                              []run // empty unless objects are distinct
}

const (
	blankName      = "kb-00000000"
	blankNamespace = "ns-00"
	blankUID       = "00000000-0000-4000-8000-000000000000"
	blankRV        = "1000000000"
	createdAt      = "2026-01-01T00:00:00Z"
	namespaces     = 16
)

var errTemplate = errors.New("not a frame as kube-apiserver writes it")

func newTemplate(frame []byte, r *Resource) (*template, error) {
	_, object, ok := bytes.Cut(frame, []byte(`"object":`))
	meta := bytes.Index(object, []byte(`"metadata":{`))
	if !ok || meta < 0 {
		return nil, errTemplate
	}
	gvk := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, r.Kind, r.apiVersion())
	head := gvk + `"metadata":{"annotations":{"` + markKey(r) + `":"` + mark.Blank + `"`
	body := string(object[meta+len(`"metadata":{`) : len(object)-1])
	if before, after, ok := strings.Cut(body, `"annotations":{`); ok && !strings.Contains(before, "managedFields") {
		own, rest, err := cutObject(after)
		if err != nil {
			return nil, err
		}
		head, body = head+","+own, before+strings.TrimPrefix(rest, ",")
	}
	body = "}," + body
	for _, f := range [][2]string{{"name", blankName}, {"namespace", blankNamespace}, {"uid", blankUID}, {"resourceVersion", blankRV}, {"creationTimestamp", createdAt}} {
		var err error
		if body, err = set(body, f[0], f[1]); err != nil {
			return nil, err
		}
	}
	t := &template{object: []byte(head + body), gvk: len(gvk) - 1}
	o := string(t.object)
	t.m = len(gvk) + len(`"metadata":`)
	inner, _, err := cutObject(o[t.m+1:])
	if err != nil {
		return nil, err
	}
	t.end = t.m + 1 + len(inner) + 1
	t.mark = strings.Index(o, mark.Blank)
	t.name = strings.Index(o, blankName)
	t.namespace = strings.Index(o, blankNamespace)
	t.uid = strings.Index(o, blankUID)
	t.rv = strings.Index(o, blankRV)
	return t, nil
}

// markKey returns the name of the annotation for the mark. For Secrets, it is one of the few annotations that the bridge publishes unchanged.
func markKey(r *Resource) string {
	if r.Kind == "Secret" {
		return "argocd.argoproj.io/tracking-id"
	}
	return "bench.kubebridge.io/mark"
}

// cutObject cuts s at the closing brace of an object. s begins after the object's
// opening brace.
func cutObject(s string) (inner, rest string, err error) {
	depth, quoted := 1, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return s[:i], s[i+1:], nil
			}
		}
	}
	return "", "", errTemplate
}

// set replaces the string value of the first such key.
func set(s, key, value string) (string, error) {
	before, after, ok := strings.Cut(s, `"`+key+`":"`)
	_, rest, ended := strings.Cut(after, `"`)
	if !ok || !ended {
		return "", fmt.Errorf("%w: it has no %s", errTemplate, key)
	}
	return before + `"` + key + `":"` + value + `"` + rest, nil
}

// prepare reads the captured frames.
func (r *Resource) prepare() error {
	source := r.Plural
	if r.Custom {
		source = "widgets"
	}
	frames, err := corpus.Frames(source)
	if err != nil {
		return err
	}
	for _, f := range frames {
		t, err := newTemplate(f, r)
		if err != nil {
			return fmt.Errorf("a frame of %s: %w", source, err)
		}
		if r.Distinct {
			t.findRuns()
		}
		r.templates = append(r.templates, t)
	}
	r.Objects = max(r.Objects, 1)
	return nil
}

// sent returns the time for the mark of event i. It is the time at which the event is
// due, so that the bytes of an object depend only on its version, as on a real server.
// Without a rate, the time is unknown.
func (r *Resource) sent(i uint64) time.Time {
	if r.rate == 0 {
		return time.UnixMicro(0)
	}
	return r.begun.Add(time.Duration(float64(i+1) / r.rate * float64(time.Second)))
}

// event returns the object of event i, the type of the event, and how often the object
// was deleted before.
func (r *Resource) event(i uint64) (object uint64, kind string, life uint64) {
	object = i % r.Objects
	n := i / r.Objects // index among the object's events
	if object < r.Initial {
		n++ // the object's first event was before event 0
	}
	if r.Lives > 1 {
		n, life = n%r.Lives, n/r.Lives
	}
	switch {
	case n == 0:
		return object, "ADDED", life
	case n == r.Lives-1:
		return object, "DELETED", life
	default:
		return object, "MODIFIED", life
	}
}

// version is one version of one object.
type version struct {
	object, life, rv, seq uint64
	sent                  time.Time
}

func (r *Resource) version(i uint64) (v version, kind string) {
	object, kind, life := r.event(i)
	return version{object, life, baseRV + 1 + i, r.First + r.Initial + i - r.Silent, r.sent(i)}, kind
}

// at returns the object's version when head events have happened, if it exists.
func (r *Resource) at(object, head uint64) (version, bool) {
	if head > r.Silent && object < r.Objects && head > object {
		i := object + (head-1-object)/r.Objects*r.Objects
		if i >= r.Silent {
			v, kind := r.version(i)
			return v, kind != "DELETED"
		}
	}
	return version{object, 0, baseRV - r.Initial + min(object, r.Initial), r.First + object, time.UnixMicro(0)}, object < r.Initial
}

// count returns the highest number of objects that may exist when head events have
// happened.
func (r *Resource) count(head uint64) uint64 {
	if head <= r.Silent {
		return r.Initial
	}
	return max(r.Initial, min(r.Objects, head))
}

// placed returns the object at a place in a list of count objects. A server lists
// objects in the order of their keys: by namespace, then by name.
func placed(place, count uint64) (object uint64) {
	each, more := count/namespaces, count%namespaces // more is the number of namespaces that have one object more than each
	first := more * (each + 1)
	if place < first {
		return place/(each+1) + place%(each+1)*namespaces
	}
	place -= first
	return more + place/each + place%each*namespaces
}

// form is a representation of an object.
type form int

const (
	whole   form = iota
	listed       // whole, without kind and apiVersion, as in a list of a built-in type
	partial      // PartialObjectMetadata
)

const partialGVK = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`

func (r *Resource) append(b []byte, v version, f form) []byte {
	t := r.templates[v.object%uint64(len(r.templates))]
	base := len(b)
	switch f {
	case whole:
		b = append(b, t.object...)
	case listed:
		b = append(append(b, '{'), t.object[t.gvk+1:]...)
		base -= t.gvk
	case partial:
		b = append(b, partialGVK...)
		base = len(b) - t.gvk - 1
		b = append(append(b, t.object[t.gvk+1:t.end]...), '}')
	}
	t.distinguish(b, base, v.object)
	put := func(at, width int, v uint64) { mark.PutDigits(b[base+at:base+at+width], v) }
	put(t.name+3, 8, v.object)
	put(t.namespace+3, 2, v.object%namespaces)
	put(t.uid, 8, v.life)
	put(t.uid+24, 12, r.First+v.object)
	put(t.rv, len(blankRV), v.rv)
	mark.Put(b[base+t.mark:], v.seq, r.First+v.object, v.sent)
	return b
}

func (r *Resource) appendFrame(b []byte, i uint64, f form) []byte {
	v, kind := r.version(i)
	b = append(append(append(b, `{"type":"`...), kind...), `","object":`...)
	b = r.append(b, v, f)
	return append(b, '}', '\n')
}

func (r *Resource) appendBookmark(b []byte, rv uint64, f form, endsInitial bool) []byte {
	kind, apiVersion := r.Kind, r.apiVersion()
	if f == partial {
		kind, apiVersion = "PartialObjectMetadata", "meta.k8s.io/v1"
	}
	b = fmt.Appendf(b, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":%q,"creationTimestamp":null`,
		kind, apiVersion, strconv.FormatUint(rv, 10))
	if endsInitial {
		b = append(b, `,"annotations":{"k8s.io/initial-events-end":"true"}`...)
	}
	return append(b, "}}}\n"...)
}
