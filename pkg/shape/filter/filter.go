// Package filter decides by expressions of the Common Expression Language (CEL,
// https://cel.dev) which events are emitted. Only those parts of an object's JSON are decoded that an
// expression uses.
package filter

import (
	"fmt"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// CostLimit bounds the cost of one evaluation, in CEL's units: one unit is about one operation
// or ten bytes of a string. The API server allows expressions the same cost
// (PerCallLimit in k8s.io/apiserver/pkg/apis/cel). CEL does not count reading and comparing objects: that has a separate
// budget, which grows with the size of the objects.
const CostLimit = 1_000_000

// Variables lists the variables of expressions. All are strings, except object and before, which
// are any JSON, and labels and annotations, which are maps of strings. The namespace is
// ns, because CEL reserves the word namespace (language definition, "Syntax").
const Variables = "object, before, type, resource, group, ns, name, labels, annotations, origin"

// Input is an event as an expression sees it.
type Input struct {
	// Object is the raw JSON of the object, for a deletion its last state. Before is its state
	// before this change. Nil means that it is not known; expressions see null.
	Object, Before []byte
	// Type is "added", "modified" and so on; Origin "watch", "reconcile" and so on.
	Type, Origin string
	// Resource is the plural name. Group is "" for the core group.
	Resource, Group string
	Namespace, Name string
}

// Filter is a compiled expression. It is safe for concurrent use.
type Filter struct {
	program cel.Program
	uses    map[string]bool
	memory  sync.Pool // of *values
}

// Compile checks an expression, whose result must be a bool. Its error has the
// line and column, and the line itself with a mark below.
func Compile(expression string) (*Filter, error) {
	if strings.TrimSpace(expression) == "" {
		return nil, fmt.Errorf("filter: the expression is empty")
	}
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		var places []string
		for _, e := range issues.Errors() {
			message := strings.TrimSuffix(e.Message, " (in container '')")
			if strings.HasPrefix(message, "undeclared reference") {
				message += "; the variables are " + Variables
			}
			if message == "reserved identifier: namespace" {
				message += " is a word of CEL's own; the variable is ns"
			}
			places = append(places, place(expression, e.Location.Line(), e.Location.Column(), message))
		}
		return nil, fmt.Errorf("filter: %s", strings.Join(places, "\n"))
	}
	if t := checked.OutputType(); !t.IsExactType(types.BoolType) {
		return nil, fmt.Errorf("filter: %s", place(expression, 1, 0,
			fmt.Sprintf("the result must be a bool, and is %s: compare it, with == true for example", t)))
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(CostLimit), cel.CustomDecoratorV2(boundCalls(env)))
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	f := &Filter{program: program, uses: map[string]bool{}}
	for _, r := range checked.NativeRep().ReferenceMap() {
		f.uses[r.Name] = true
	}
	f.memory.New = func() any { return new(values) }
	return f, nil
}

// environment returns an environment that is close to the API server's: it has the same extensions, without the server's own
// libraries (quantities, authorizer). As there, base64 is the only encoder, because CEL does not bound the cost of
// parsing or writing JSON and YAML.
func environment() (*cel.Env, error) {
	texts := cel.MapType(cel.StringType, cel.StringType)
	return cel.NewEnv(
		cel.Variable("object", cel.DynType), cel.Variable("before", cel.DynType),
		cel.Variable("type", cel.StringType), cel.Variable("origin", cel.StringType),
		cel.Variable("resource", cel.StringType), cel.Variable("group", cel.StringType),
		cel.Variable("ns", cel.StringType), cel.Variable("name", cel.StringType),
		cel.Variable("labels", texts), cel.Variable("annotations", texts),
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true),
		ext.Strings(), ext.Lists(), ext.Sets(), ext.Regex(), ext.Bindings(), ext.TwoVarComprehensions(), ext.Encoders(ext.EncodersVersion(0)),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
	)
}

// place formats an error with its position. line counts from 1, column from 0, in characters.
func place(expression string, line, column int, message string) string {
	text := ""
	if lines := strings.Split(expression, "\n"); 0 < line && line <= len(lines) {
		text = strings.ReplaceAll(strings.TrimRight(lines[line-1], "\r"), "\t", " ")
	}
	return fmt.Sprintf("line %d, column %d: %s\n  %s\n  %s^", line, column+1, message, text, strings.Repeat(" ", max(column, 0)))
}

// Uses reports whether the expression uses a variable. The caller need not know the former state if
// the expression does not use before.
func (f *Filter) Uses(variable string) bool { return f.uses[variable] }

// Match reports whether an event passes. If the expression cannot be evaluated, for example because
// it reads a field that does not exist, or costs too much, the event passes
// and the error says why: an event is only left out if the expression says so.
func (f *Filter) Match(in *Input) (bool, error) {
	pass, _, err := f.match(in)
	return pass, err
}

// match is Match, and also returns how many steps it took to read and compare the objects.
func (f *Filter) match(in *Input) (pass bool, steps int64, err error) {
	v := f.memory.Get().(*values)
	v.input = in
	v.reader.begin(len(in.Object) + len(in.Before))
	defer func() {
		*v = values{reader: v.reader}
		f.memory.Put(v)
	}()
	result, _, err := f.program.Eval(v)
	steps = v.reader.steps()
	if v.reader.spent() { // the expression may have ignored the error, for example by ||
		err = errCostly
	}
	if err != nil {
		return true, steps, fmt.Errorf("filter: %w", err)
	}
	is, ok := result.(types.Bool)
	if !ok {
		return true, steps, fmt.Errorf("filter: the result is %s, not a bool", result.Type().TypeName())
	}
	return bool(is), steps, nil
}

// values are an input's variables (cel.Activation).
type values struct {
	input          *Input
	reader         reader
	object, before ref.Val // nil until they are needed
}

func (v *values) Parent() cel.Activation { return nil }

func (v *values) ResolveName(name string) (any, bool) {
	switch name {
	case readerVariable:
		return &v.reader, true
	case "object":
		return v.get(&v.object, v.input.Object), true
	case "before":
		return v.get(&v.before, v.input.Before), true
	case "labels", "annotations":
		return v.texts(types.String(name)), true
	case "type":
		return types.String(v.input.Type), true
	case "origin":
		return types.String(v.input.Origin), true
	case "resource":
		return types.String(v.input.Resource), true
	case "group":
		return types.String(v.input.Group), true
	case "ns":
		return types.String(v.input.Namespace), true
	case "name":
		return types.String(v.input.Name), true
	}
	return nil, false
}

func (v *values) get(to *ref.Val, raw []byte) ref.Val {
	if *to == nil {
		*to = v.reader.value(raw)
	}
	return *to
}

// texts returns the object's labels or annotations; an empty map if it has none.
func (v *values) texts(of types.String) ref.Val {
	at := v.get(&v.object, v.input.Object)
	for _, name := range []types.String{"metadata", of} {
		o, ok := at.(*object)
		if !ok {
			break
		}
		at, _ = o.Find(name)
	}
	if o, ok := at.(*object); ok {
		return o
	}
	if types.IsError(at) {
		return at
	}
	return &object{reader: &v.reader, raw: []byte("{}")}
}
