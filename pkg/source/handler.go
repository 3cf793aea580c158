package source

import "context"

// HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, s Signal) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, s Signal) error { return f(ctx, s) }

// String is the kind in a word or two: "added", "list begun".
func (k SignalKind) String() string {
	names := [...]string{"", "list begun", "listed", "list ended", "added", "modified", "deleted", "progress"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// handlerError is an error of the handler, not of the server. It ends the Run of a collection.
type handlerError struct{ error }

func (e handlerError) Unwrap() error { return e.error }
