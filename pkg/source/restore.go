package source

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/kubebridge/internal/scan"
)

// own restores o and makes it independent of the page that it was found in: an
// object waiting for the bus must not hold the others.
func (c *Collection) own(o *Object) {
	if !c.restore(o) {
		o.Raw = bytes.Clone(o.Raw)
	}
}

// restore makes o what the collection promises: with the resource's kind and
// apiVersion, and without a body where only metadata is wanted (a server that
// does not know that form sends whole objects). It reports whether Raw is another
// slice now.
func (c *Collection) restore(o *Object) bool {
	r := c.target.Resource
	if c.target.Collection.MetadataOnly {
		o.cutToMetadata(r.APIVersion(), r.Kind)
		return true
	}
	return o.restoreGVK(r.APIVersion(), r.Kind)
}

// isPartial reports whether kind and apiVersion are those of the form that only
// metadata comes in.
func (o *Object) isPartial() bool {
	return o.Kind == "PartialObjectMetadata" && strings.HasPrefix(o.APIVersion, "meta.k8s.io/")
}

// restoreGVK puts apiVersion and kind in front where the server left them out, as
// it does in lists of built-in types, or sent others, as it does for metadata
// only. It reports whether it did.
func (o *Object) restoreGVK(apiVersion, kind string) bool {
	if o.APIVersion != "" && o.Kind != "" && !o.isPartial() {
		return false
	}
	head := appendGVK(make([]byte, 0, 64), apiVersion, kind)
	raw := append(make([]byte, 0, len(head)+len(o.Raw)), head...)
	moved := 0
	o.each([3]span{o.gvk[0], o.gvk[1]}, func(p span) {
		if p.start <= o.managedFields.start && o.managedFields.end <= p.end {
			moved = len(raw) - p.start
		}
		raw = append(raw, o.Raw[p.start:p.end]...)
	})
	raw[len(head)] = ',' // for the brace
	if rest := bytes.TrimLeft(raw[len(head)+1:], scan.WhiteSpace); rest[0] == '}' {
		raw = append(raw[:len(head)], rest...)
	}
	o.Raw, o.metadata = raw, span{} // which nobody needs any more
	o.managedFields = o.managedFields.shift(moved)
	o.gvk = [2]span{{1, len(head)}, {}}
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

// appendGVK appends the beginning of an object.
func appendGVK(dst []byte, apiVersion, kind string) []byte {
	dst = append(dst, `{"apiVersion":`...)
	dst, _ = jsontext.AppendQuote(dst, apiVersion) // discovery's names are valid UTF-8
	dst = append(dst, `,"kind":`...)
	dst, _ = jsontext.AppendQuote(dst, kind)
	return dst
}
