package peer

import (
	"bytes"
	"errors"
)

// frame is what a bridge needs to know of a watch frame. The slices are the
// frame's own.
type frame struct {
	kind, apiVersion, typ, name, namespace, uid, rv []byte
	object, end                                     int // of the object's bytes
	drop, dropEnd                                   int // of managedFields, with a comma
}

var errFrame = errors.New("not a frame as kube-apiserver writes it")

// scan trusts the server to send compact, valid JSON: this is a floor, no product.
func scan(b []byte) (f frame, err error) {
	b = bytes.TrimRight(b, "\n")
	members(b, 0, func(key []byte, _, i, j int) {
		switch string(key) {
		case "type":
			f.typ = b[i+1 : j-1]
		case "object":
			f.object, f.end = i, j
		}
	}, func(key []byte, i int) int {
		if string(key) != "object" {
			return -1
		}
		return members(b, i, func(key []byte, _, i, j int) {
			switch string(key) {
			case "kind":
				f.kind = b[i+1 : j-1]
			case "apiVersion":
				f.apiVersion = b[i+1 : j-1]
			}
		}, func(key []byte, i int) int {
			if string(key) != "metadata" {
				return -1
			}
			return members(b, i, func(key []byte, k, i, j int) {
				switch string(key) {
				case "name":
					f.name = b[i+1 : j-1]
				case "namespace":
					f.namespace = b[i+1 : j-1]
				case "uid":
					f.uid = b[i+1 : j-1]
				case "resourceVersion":
					f.rv = b[i+1 : j-1]
				case "managedFields":
					if f.drop, f.dropEnd = k, j; b[j] == ',' {
						f.dropEnd++
					} else if b[k-1] == ',' {
						f.drop--
					}
				}
			}, nil)
		})
	})
	if f.uid == nil && string(f.typ) != "BOOKMARK" || f.end == 0 {
		return f, errFrame
	}
	return f, nil
}

// members calls found with each member of the object at b[i:], the places of its
// key, its value and the value's end, and returns the object's end. into may take
// a value upon itself: it returns the value's end, or -1.
func members(b []byte, i int, found func(key []byte, k, i, j int), into func(key []byte, i int) int) int {
	i++
	for i < len(b) && b[i] == '"' {
		k := i
		i = text(b, i+1)
		key := b[k+1 : i-1]
		i++ // the colon
		j := -1
		if into != nil {
			j = into(key, i)
		}
		if j < 0 {
			j = skip(b, i)
		}
		found(key, k, i, j)
		if i = j; b[i] != ',' {
			break
		}
		i++
	}
	return i + 1
}

// text returns the place behind the string that begins before i.
func text(b []byte, i int) int {
	for {
		for end := min(i+16, len(b)); i < end; i++ { // most are short
			switch b[i] {
			case '"':
				return i + 1
			case '\\':
				i++
			}
		}
		j := i + bytes.IndexByte(b[i:], '"')
		n := j
		for n > i && b[n-1] == '\\' {
			n--
		}
		if (j-n)%2 == 0 {
			return j + 1
		}
		i = j + 1
	}
}

// skip returns the place behind the value that begins at i.
func skip(b []byte, i int) int {
	switch b[i] {
	case '"':
		return text(b, i+1)
	case '{', '[':
	default:
		for b[i] != ',' && b[i] != '}' && b[i] != ']' {
			i++
		}
		return i
	}
	for depth := 0; ; {
		switch b[i] {
		case '"':
			i = text(b, i+1)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
}

// appendEvent appends a CloudEvent with the object, managedFields left out.
func (f *frame) appendEvent(dst, b, at []byte) []byte {
	add := func(s string, v []byte) { dst = append(append(dst, s...), v...) }
	add(`{"specversion":"1.0","id":"`, f.uid)
	add(`:`, f.rv)
	add(`","source":"/clusters/bench","type":"io.kubebridge.resource.`, f.typ)
	add(`.v1","subject":"`, f.namespace)
	add(`/`, f.name)
	add(`","time":"`, at)
	add(`","kind":"`, f.kind)
	add(`","apiversion":"`, f.apiVersion)
	dst = append(dst, `","datacontenttype":"application/json","data":{"object":`...)
	from := f.object
	if f.dropEnd > 0 {
		dst = append(dst, b[from:f.drop]...)
		from = f.dropEnd
	}
	return append(append(dst, b[from:f.end]...), "}}"...)
}
