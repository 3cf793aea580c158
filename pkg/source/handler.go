package source

import "context"

// HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, s Signal) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, s Signal) error { return f(ctx, s) }
