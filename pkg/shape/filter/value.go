package filter

import (
	"bytes"
	"reflect"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/kubebridge/kubebridge/internal/scan"
	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

// reader makes values of raw JSON.
type reader struct{ scan scan.Scanner }

// value is what a text says, null for no text. Containers are read when they are
// looked into.
func (r *reader) value(text []byte) ref.Val {
	text = bytes.Trim(text, scan.WhiteSpace)
	if len(text) == 0 {
		return types.NullValue
	}
	switch text[0] {
	case '{':
		return &object{reader: r, raw: text}
	case '[':
		elements, err := raw.AppendElements(&r.scan, nil, text)
		if err != nil {
			return types.WrapErr(err)
		}
		list := make([]ref.Val, len(elements))
		for i, e := range elements {
			list[i] = r.value(e)
		}
		return types.NewRefValList(types.DefaultTypeAdapter, list)
	case '"':
		return types.String(scan.Unquote(text))
	case 't', 'f':
		return types.Bool(text[0] == 't')
	case 'n':
		return types.NullValue
	}
	if i, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return types.Int(i)
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Double(f)
}

// object is a JSON object as a map (traits.Mapper). The values are read one by one as
// they are asked for; a caller that wants all of them gets an ordinary map.
type object struct {
	reader  *reader
	raw     []byte
	members []raw.Member // nil until they are asked for
	all     traits.Mapper
	err     error
}

func (o *object) read() error {
	if o.members == nil && o.err == nil {
		o.members, o.err = raw.AppendMembers(&o.reader.scan, make([]raw.Member, 0, 16), o.raw)
	}
	return o.err
}

// Find returns the value of a name, and whether it is there.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return o.whole().Find(key)
	}
	if err := o.read(); err != nil {
		return types.WrapErr(err), false
	}
	for i := len(o.members) - 1; i >= 0; i-- { // of one name the last counts
		if string(o.members[i].Name) == string(name) {
			return o.reader.value(o.members[i].Value), true
		}
	}
	return nil, false
}

// whole is a map of all members.
func (o *object) whole() traits.Mapper {
	if o.all == nil {
		values := map[ref.Val]ref.Val{}
		if o.read() == nil {
			for _, m := range o.members {
				values[types.String(m.Name)] = o.reader.value(m.Value)
			}
		}
		o.all = types.NewRefValMap(types.DefaultTypeAdapter, values)
	}
	return o.all
}

func (o *object) Contains(key ref.Val) ref.Val {
	v, found := o.Find(key)
	if v != nil && types.IsUnknownOrError(v) {
		return v
	}
	return types.Bool(found)
}

func (o *object) Get(key ref.Val) ref.Val {
	v, found := o.Find(key)
	if found || v != nil {
		return v
	}
	return types.NewErr("no such key: %v", key.Value())
}

func (o *object) Equal(other ref.Val) ref.Val {
	if err := o.read(); err != nil {
		return types.WrapErr(err)
	}
	if p, ok := other.(*object); ok {
		if bytes.Equal(o.raw, p.raw) {
			return types.True
		}
		if err := p.read(); err != nil {
			return types.WrapErr(err)
		}
		other = p.whole()
	}
	return o.whole().Equal(other)
}

func (o *object) Size() ref.Val {
	if err := o.read(); err != nil {
		return types.WrapErr(err)
	}
	return o.whole().Size()
}

func (o *object) Iterator() traits.Iterator { return o.whole().Iterator() }

func (o *object) ConvertToNative(t reflect.Type) (any, error) {
	if err := o.read(); err != nil {
		return nil, err
	}
	return o.whole().ConvertToNative(t)
}

func (o *object) ConvertToType(t ref.Type) ref.Val { return o.whole().ConvertToType(t) }
func (o *object) Type() ref.Type                   { return types.MapType }
func (o *object) Value() any                       { return o.whole().Value() }
