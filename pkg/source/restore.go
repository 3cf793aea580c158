package source

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/kubebridge/internal/base/scan"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// restore completes o as the collection promises: it adds the resource's kind and apiVersion, removes the body if only
// metadata is wanted (a server that does not support that form sends whole objects), and truncates an object that is
// nested too deeply. It reports whether Raw is another slice, which uses room if its capacity is enough.
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
	head, _ := scan.AppendHead(nil, o.Raw, event.MaxLevels) // cannot fail, because the object has been scanned
	var s scanner
	s.Reset(head)
	cut, err := s.object()
	if err != nil { // no part of the object is left
		cut = Object{Raw: head}
	}
	cut.CutFrom, cut.memory = len(o.Raw), o.memory
	*o = cut
}

// isPartial reports whether kind and apiVersion are those of the metadata-only form.
func (o *Object) isPartial() bool {
	return o.Kind == "PartialObjectMetadata" && strings.HasPrefix(o.APIVersion, "meta.k8s.io/")
}

// ParseItem is [ParseObject] for an item of a list, or what a typed client encodes: it may lack apiVersion and kind, and
// gets them. Raw is then a copy.
func ParseItem(raw []byte, apiVersion, kind string) (Object, error) {
	o, err := parseText(raw)
	if err != nil {
		return Object{}, fmt.Errorf("parse object: %w", err)
	}
	o.restoreGVK(apiVersion, kind, nil)
	return o, nil
}

// restoreGVK puts apiVersion and kind at the front if the server left them out, as in lists of built-in types, or sent
// others, as for metadata only. It reports whether it changed Raw; Raw then uses room if its capacity is enough.
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
	raw[head] = ',' // replaces the brace
	if rest := bytes.TrimLeft(raw[head+1:], scan.WhiteSpace); rest[0] == '}' {
		raw = append(raw[:head], rest...)
	}
	o.Raw, o.metadata = raw, span{} // the span is no longer used
	o.managedFields = o.managedFields.shift(moved)
	o.gvk = [2]span{{1, head}, {}}
	o.APIVersion, o.Kind = apiVersion, kind
	return true
}

// cutToMetadata reduces an object to apiVersion, kind and metadata, in memory of
// its own. The arguments apiVersion and kind are for an object that has none.
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

// gvkBytes is the usual maximum size of apiVersion and kind.
const gvkBytes = 128

// appendGVK appends the beginning of an object.
func appendGVK(dst []byte, apiVersion, kind string) []byte {
	dst = append(dst, `{"apiVersion":`...)
	dst, _ = jsontext.AppendQuote(dst, apiVersion) // discovery's names are valid UTF-8
	dst = append(dst, `,"kind":`...)
	dst, _ = jsontext.AppendQuote(dst, kind)
	return dst
}
