// Package consumer keeps a copy of clusters' objects from the events that the bridge wrote to a
// bus, by the rules of docs/events.md.
//
// A [State] applies messages, from whatever client reads them, by these
// rules: it ignores repeated and late events, follows gaps, resets and closed
// collections in each partition, unites the collections of a resource, and reports which
// resources are complete and as of when.
//
//	var state consumer.State
//	for change, err := range state.Changes(ctx, source) {
//		if errors.Is(err, event.ErrNotEvent) {
//			continue // somebody else wrote the message
//		}
//		if err != nil {
//			return err
//		}
//		fmt.Println(change.Event.Type, change.Event.Name)
//	}
//
// [Attributions] joins the objects of a copy with the users who made their last changes.
//
// The copy is in memory: a consumer that restarts reads from the beginning, or from where it was if it keeps the records of
// [State.Save]. If the bus no longer has the beginning, [State.Complete] reports a resource as not complete until
// a reset or a resync has published every object again.
//
// The package imports no client. examples/go has sources for franz-go and nats.go.
package consumer
