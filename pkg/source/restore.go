package source

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/kubebridge/internal/scan"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// restore makes o what the collection promises: with the resource's kind and
// apiVersion, and without a body where only metadata is wanted (a server that
// does not know that form sends whole objects), and without what is nested too deeply. It
// reports whether Raw is another slice now, which may be of room, where its capacity is enough.
func (c *Collection) restore(o *Object, room []byte) bool {
	r := c.target.Resource
	if o.levels > event.MaxLevels {
		o.cutDown()
	}
	if c.target.Collection.MetadataOnly {
		o.cutToMetadata(r.APIVersion(), r.Kind)
		return true
	}
	return o.restoreGVK(r.APIVersion(), r.Kind, room)
}

// cutDown leaves the head of an object in Raw, in memory of its own.
func (o *Object) cutDown() {
	head, _ := scan.AppendHead(nil, o.Raw, event.MaxLevels) // it was scanned: cannot fail
	var s scanner
	s.Reset(head)
	cut, err := s.object()
	if err != nil { // nothing is left
		cut = Object{Raw: head}
	}
	cut.CutFrom, cut.memory = len(o.Raw), o.memory
	*o = cut
}

// isPartial reports whether kind and apiVersion are those of the form that only
// metadata comes in.
func (o *Object) isPartial() bool {
	return o.Kind == "PartialObjectMetadata" && strings.HasPrefix(o.APIVersion, "meta.k8s.io/")
}

// restoreGVK puts apiVersion and kind in front where the server left them out, as
// it does in lists of built-in types, or sent others, as it does for metadata
// only. It reports whether it did; Raw is then of room, where its capacity is enough.
func (o *Object) restoreGVK(apiVersion, kind string, room []byte) bool {
	if o.APIVersion != "" && o.Kind != "" && !o.isPartial() {
		return false
	}
	raw := appendGVK(slices.Grow(room, len(o.Raw)+gvkBytes), apiVersion, kind)
	head, moved := len(raw), 0
	o.each([3]span{o.gvk[0], o.gvk[1]}, func(p span) {
		if p.start <= o.managedFields.start && o.managedFields.end <= p.end {
			moved = len(raw) - p.start
		}
		raw = append(raw, o.Raw[p.start:p.end]...)
	})
	raw[head] = ',' // for the brace
	if rest := bytes.TrimLeft(raw[head+1:], scan.WhiteSpace); rest[0] == '}' {
		raw = append(raw[:head], rest...)
	}
	o.Raw, o.metadata = raw, span{} // which nobody needs any more
	o.managedFields = o.managedFields.shift(moved)
	o.gvk = [2]span{{1, head}, {}}
	o.APIVersion, o.Kind = apiVersion, kind
	return true
}

// cutToMetadata leaves apiVersion, kind and metadata of an object, in memory of
// their own. apiVersion and kind are for an object that has none of its own.
func (o *Object) cutToMetadata(apiVersion, kind string) {
	if o.APIVersion == "" || o.Kind == "" || o.isPartial() {
		o.APIVersion, o.Kind = apiVersion, kind
	}
	metadata := bytes.TrimLeft(o.Raw[o.metadata.start:o.metadata.end], scan.WhiteSpace+",")
	raw := appendGVK(make([]byte, 0, len(metadata)+len(o.APIVersion)+len(o.Kind)+32), o.APIVersion, o.Kind)
	o.gvk = [2]span{{1, len(raw)}, {}}
	if len(metadata) > 0 {
		raw = append(raw, ',')
		o.managedFields = o.managedFields.shift(len(raw) - (o.metadata.end - len(metadata)))
		raw = append(raw, metadata...)
	}
	o.Raw, o.metadata = append(raw, '}'), span{}
}

// gvkBytes is what apiVersion and kind usually add at most.
const gvkBytes = 128

// appendGVK appends the beginning of an object.
func appendGVK(dst []byte, apiVersion, kind string) []byte {
	dst = append(dst, `{"apiVersion":`...)
	dst, _ = jsontext.AppendQuote(dst, apiVersion) // discovery's names are valid UTF-8
	dst = append(dst, `,"kind":`...)
	dst, _ = jsontext.AppendQuote(dst, kind)
	return dst
}
