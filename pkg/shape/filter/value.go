package filter

import (
	"bytes"
	"errors"
	"reflect"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/kubebridge/kubebridge/internal/base/scan"
	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

var errCostly = errors.New("operation cancelled: it takes too many steps to read and compare this object")

// perByte is the budget of an evaluation in steps per byte. Expressions that are not written to be costly need at most 64 for ordinary
// objects.
const perByte = 64

// reader turns raw JSON into CEL values, until its budget is spent.
type reader struct {
	scan          scan.Scanner
	start, budget int64 // steps
	others        int64 // steps beside those of the scanner
}

func (r *reader) begin(bytes int) {
	r.start, r.others, r.budget = r.scan.Steps(), 0, raw.Budget(perByte, bytes)
}

// steps returns the number of bytes that were read or compared, plus the steps of calls (callSteps).
func (r *reader) steps() int64 { return r.scan.Steps() - r.start + r.others }

func (r *reader) spent() bool { return r.steps() > r.budget }

// allows reports whether the budget allows more steps.
func (r *reader) allows(steps int64) bool { return !r.spent() && steps <= r.budget-r.steps() }

// spend counts steps and reports whether the budget allows them. If not, the whole budget counts as spent.
func (r *reader) spend(steps int64) bool {
	allowed := r.allows(steps)
	if !allowed && !r.spent() {
		steps = r.budget - r.steps() + 1
	}
	if !r.spent() {
		r.others += steps
	}
	return allowed
}

// spendCompare counts the steps of comparing a text, and reports whether the budget allows them.
func (r *reader) spendCompare(text []byte) bool { return r.spend(int64(len(text))) }

// value returns the value of a JSON text; null for an empty text. The members of an object are read when they are
// needed.
func (r *reader) value(text []byte) ref.Val {
	text = bytes.Trim(text, scan.WhiteSpace)
	if len(text) == 0 {
		return types.NullValue
	}
	switch text[0] {
	case '{':
		return &object{reader: r, raw: text}
	case '[':
		if r.spent() {
			return types.WrapErr(errCostly)
		}
		elements, err := raw.AppendElements(&r.scan, nil, text)
		if err != nil {
			return types.WrapErr(err)
		}
		values := make([]ref.Val, len(elements))
		for i, e := range elements {
			values[i] = r.value(e)
		}
		return &list{types.NewRefValList(types.DefaultTypeAdapter, values), r, text}
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

// list is a JSON array.
type list struct {
	traits.Lister
	reader *reader
	raw    []byte
}

func (l *list) Equal(other ref.Val) ref.Val {
	if !l.reader.spendCompare(l.raw) {
		return types.WrapErr(errCostly)
	}
	if o, ok := other.(*list); ok && bytes.Equal(l.raw, o.raw) {
		return types.True
	}
	return l.Lister.Equal(other)
}

func (l *list) Contains(value ref.Val) ref.Val {
	if !l.reader.spendCompare(l.raw) {
		return types.WrapErr(errCostly)
	}
	return l.Lister.Contains(value)
}

// object is a JSON object as a map (traits.Mapper). Each value is read when it is first
// needed. For operations on all members it becomes an ordinary map.
type object struct {
	reader  *reader
	raw     []byte
	members []raw.Member // sorted; nil until they are needed
	values  []ref.Val    // the values of the members; each is nil until it is needed
	all     traits.Mapper
	err     error
}

func (o *object) read() error {
	if o.members == nil && o.err == nil {
		if o.err = errCostly; o.reader.spent() {
			return o.err
		}
		o.members, o.err = raw.AppendMembers(&o.reader.scan, make([]raw.Member, 0, 16), o.raw)
		raw.Sort(o.members)
		o.values = make([]ref.Val, len(o.members))
	}
	return o.err
}

func (o *object) value(i int) ref.Val {
	if o.values[i] == nil {
		o.values[i] = o.reader.value(o.members[i].Value)
	}
	return o.values[i]
}

// Find returns the value of a name, and whether the object has it.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return o.whole().Find(key)
	}
	if err := o.read(); err != nil {
		return types.WrapErr(err), false
	}
	if !o.reader.spend(int64(len(name)) / 4) { // a name can be as long as the object
		return types.WrapErr(errCostly), false
	}
	if i := raw.Search(o.members, []byte(name)); i >= 0 { // if a name occurs twice, Search finds the last one
		return o.value(i), true
	}
	return nil, false
}

// whole returns an ordinary map of all members.
func (o *object) whole() traits.Mapper {
	if o.all == nil {
		values := map[ref.Val]ref.Val{}
		if o.read() == nil {
			for i, m := range o.members {
				values[types.String(m.Name)] = o.value(i)
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
	if !o.reader.spendCompare(o.raw) {
		return types.WrapErr(errCostly)
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
