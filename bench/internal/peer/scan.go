package peer

import (
	"bytes"
	"errors"
)

// frame has the parts of a watch frame that an event needs. The slices refer to the
// bytes of the frame.
type frame struct {
	kind, apiVersion, typ, name, namespace, uid, rv []byte
	object, end                                     int // begin and end of the object
	drop, dropEnd                                   int // begin and end of managedFields, including a comma
}

var errFrame = errors.New("not a frame as kube-apiserver writes it")

// scan finds the parts of a frame. It relies on the server to send compact, valid JSON,
// because [Raw] shows how little work is possible.
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

// members calls found for each member of the object at b[i:], with the positions of
// its key, of its value and after the value. It returns the position after the object.
// If into parses a value itself, it returns the position after the value, else -1.
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

// text returns the position after the string whose opening quote is before i.
func text(b []byte, i int) int {
	for {
		for end := min(i+16, len(b)); i < end; i++ { // most strings are short
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

// skip returns the position after the value that begins at i.
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

// appendEvent appends a CloudEvent with the object, without managedFields.
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
