package filter

import (
	"fmt"
	"math"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// readerVariable is the variable under which a call finds the reader of its evaluation. No expression can name it.
const readerVariable = "@reader"

// stepsPerPatternByte is the cost of compiling one byte of a regular expression: a{1000} becomes a thousand instructions.
const stepsPerPatternByte = 200

// boundCalls returns a decorator of programs. CEL counts the cost of a call only when the call has returned, so a single call can take
// any time and memory. The decorator lets calls check the budget first whose work grows faster than the cost that CEL counts
// for them.
func boundCalls(env *cel.Env) interpreter.InterpretableDecoratorV2 {
	declared := env.Functions()
	return func(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := node.(interpreter.InterpretableCall)
		if !ok || !isBounded(call) {
			return node, nil
		}
		run, err := implementation(declared[call.Function()])
		if err != nil {
			return nil, err
		}
		return &boundedCall{InterpretableCall: call, run: run}, nil
	}
}

// isBounded reports whether a call checks the budget (see callSteps). A comparison with a constant text or number does not: it
// takes at most as many steps as the constant has bytes.
func isBounded(call interpreter.InterpretableCall) bool {
	switch call.Function() {
	case operators.Equals, operators.NotEquals:
		for _, arg := range call.Args() {
			if c, ok := arg.(interpreter.InterpretableConst); ok && !isContainer(c.Value()) {
				return false
			}
		}
		return true
	case operators.In, "distinct", "sort", "@sortByAssociatedKeys", "flatten",
		"sets.contains", "sets.equivalent", "sets.intersects", "hasOnly", "hasAny", "hasAll", "hasExactly",
		"indexOf", "lastIndexOf", "replace", "join", "format",
		"matches", "regex.extract", "regex.extractAll", "regex.replace",
		"size", "int", "uint", "double", "bool", "duration", "timestamp":
		return true
	}
	return false
}

// implementation returns the implementation of a function that chooses among its overloads.
func implementation(function *decls.FunctionDecl) (functions.FunctionOp, error) {
	switch function.Name() {
	case operators.Equals: // these two are built into the interpreter and have no bindings
		return func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }, nil
	case operators.NotEquals:
		return func(args ...ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }, nil
	}
	overloads, err := function.Bindings()
	if err != nil {
		return nil, err
	}
	for _, o := range overloads {
		if o.Operator != function.Name() {
			continue
		}
		return func(args ...ref.Val) ref.Val {
			switch {
			case o.OperandTrait != 0 && !args[0].Type().HasTrait(o.OperandTrait):
			case o.Unary != nil && len(args) == 1:
				return o.Unary(args[0])
			case o.Binary != nil && len(args) == 2:
				return o.Binary(args[0], args[1])
			case o.Function != nil:
				return o.Function(args...)
			}
			return decls.MaybeNoSuchOverload(o.Operator, args...)
		}, nil
	}
	return nil, fmt.Errorf("the function %s has no implementation", function.Name())
}

// boundedCall is a call that checks the budget after its arguments are evaluated.
type boundedCall struct {
	interpreter.InterpretableCall
	run functions.FunctionOp
}

func (c *boundedCall) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

func (c *boundedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	nodes := c.Args()
	args := make([]ref.Val, len(nodes))
	for i, node := range nodes {
		if args[i] = node.Exec(frame); types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	if v, ok := frame.ResolveName(readerVariable); ok {
		r := v.(*reader)
		if !r.spend(r.callSteps(c.InterpretableCall, args)) {
			return types.LabelErrNode(c.ID(), types.WrapErr(errCostly))
		}
	}
	result := types.LabelErrNode(c.ID(), c.run(args...))
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalVarArgs(frame, c.ID(), c, args, result)
	}
	return result
}

// callSteps returns a lower bound of the steps that a call takes, without the steps that lists and objects count themselves.
//
//	==, !=, in                  the values that are compared
//	distinct, sets.*, has*      each element of one list with each of the other
//	sort                        each element 16 times
//	flatten, join, format       the result
//	replace, regex.replace      the result
//	size, int, double, ...      the text; four bytes are a step
//	indexOf, lastIndexOf        text times pattern; four characters are a step
//	matches, regex.*            compiling the pattern; text times pattern if the pattern is not a constant of the expression
func (r *reader) callSteps(call interpreter.InterpretableCall, args []ref.Val) int64 {
	first, second := args[0], args[len(args)-1]
	if len(args) > 1 {
		second = args[1]
	}
	switch function := call.Function(); function {
	case operators.Equals, operators.NotEquals:
		return r.equalSteps(first, second)
	case operators.In:
		if _, ok := second.(traits.Lister); ok { // a lookup in a map takes no steps
			return r.compareSteps(second)
		}
		return 0
	case "size", "int", "uint", "double", "bool", "duration", "timestamp":
		if isContainer(first) {
			return 0
		}
		return length(first) / 4
	case "distinct":
		return times(length(first), r.elements(first, r.compareSteps))
	case "sort", "@sortByAssociatedKeys":
		return times(16, r.elements(second, r.compareSteps))
	case "indexOf", "lastIndexOf":
		return times(length(first), length(second)) / 4
	case "replace":
		return replaceSteps(args)
	case "join":
		return r.writeSteps(first) + times(length(first), 1+length(second))
	case "flatten":
		return r.writeSteps(first)
	case "format":
		return r.writeSteps(first) + r.writeSteps(second)
	case "matches", "regex.extract", "regex.extractAll", "regex.replace":
		return r.patternSteps(call, args)
	default: // sets
		return r.containsSteps(first, second) + r.containsSteps(second, first)
	}
}

func (r *reader) equalSteps(a, b ref.Val) int64 {
	switch a.(type) {
	case *list, *object: // their Equal counts its steps itself
		return 0
	case traits.Lister, traits.Mapper:
		if length(a) != length(b) {
			return 0
		}
	}
	return r.compareSteps(a)
}

// containsSteps returns the steps for finding each element of a list in another one. It is 0 for a list that counts its steps itself.
func (r *reader) containsSteps(in, of ref.Val) int64 {
	if _, ok := in.(*list); ok {
		return 0
	}
	return times(1+length(of), r.elements(in, r.compareSteps))
}

// replaceSteps returns the length of the result of text.replace(old, new).
func replaceSteps(args []ref.Val) int64 {
	text, ok1 := args[0].(types.String)
	old, ok2 := args[1].(types.String)
	if !ok1 || !ok2 {
		return 0
	}
	return int64(len(text)) + times(int64(strings.Count(string(text), string(old))), length(args[2]))
}

func (r *reader) patternSteps(call interpreter.InterpretableCall, args []ref.Val) int64 {
	pattern, _ := args[1].(types.String)
	steps := times(stepsPerPatternByte, length(pattern))
	if _, own := call.Args()[1].(interpreter.InterpretableConst); !own && r.allows(steps) {
		if n, err := types.RegexProgramSize(string(pattern)); err == nil {
			steps += times(int64(n), length(args[0]))
		}
	}
	if len(args) > 2 { // each byte of the replacement may insert the whole match
		steps += times(length(args[0]), length(args[2]))
	}
	return steps
}

// compareSteps returns the steps for comparing a value with an equal one, without the steps that lists and objects count themselves.
// Sixteen bytes of a text are one step.
func (r *reader) compareSteps(v ref.Val) int64 {
	switch v := v.(type) {
	case *list, *object:
		return 1
	case types.String, types.Bytes:
		return 1 + length(v)/16
	}
	return r.elements(v, r.compareSteps)
}

// writeSteps returns the approximate length of a value as a text.
func (r *reader) writeSteps(v ref.Val) int64 {
	switch v := v.(type) {
	case *list:
		return int64(len(v.raw))
	case *object:
		return int64(len(v.raw))
	case types.String, types.Bytes:
		return 2 + length(v)
	}
	return r.elements(v, r.writeSteps)
}

// elements returns the sum of the steps of all elements of a list or map, plus one. It stops when the sum exceeds the budget.
func (r *reader) elements(v ref.Val, steps func(ref.Val) int64) int64 {
	sum := int64(1)
	switch v := v.(type) {
	case *types.Optional:
		if v.HasValue() {
			sum += steps(v.GetValue())
		}
	case traits.Lister:
		for i := range types.Int(length(v)) {
			if sum += steps(v.Get(i)); !r.allows(sum) {
				break
			}
		}
	case traits.Mapper:
		for keys := v.Iterator(); keys.HasNext() == types.True && r.allows(sum); {
			key := keys.Next()
			sum += steps(key) + steps(v.Get(key))
		}
	}
	return sum
}

// length returns the length of a list or map, or of a text in bytes; 0 for other values.
func length(v ref.Val) int64 {
	switch v := v.(type) {
	case types.String:
		return int64(len(v))
	case types.Bytes:
		return int64(len(v))
	case traits.Sizer:
		if n, ok := v.Size().(types.Int); ok {
			return int64(n)
		}
	}
	return 0
}

func isContainer(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper, *types.Optional:
		return true
	}
	return false
}

// times returns the product of two lengths, at most a quarter of the largest int64, so that sums of products do not overflow.
func times(a, b int64) int64 {
	const most = math.MaxInt64 / 4
	if a > 0 && b > most/a {
		return most
	}
	return a * b
}
