// Package consumer keeps a copy of clusters' objects from what the bridge wrote to
// a bus.
//
// A [State] takes messages, from whatever client reads them, and knows the rules
// of docs/events.md: it drops what came twice or too late, follows gaps, resets
// and closed collections, on Kafka in each partition for itself, and says up to
// where the copy is complete.
//
//	var state consumer.State
//	for change, err := range state.Changes(ctx, source) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(change.Event.Type, change.Event.Name)
//	}
//
// It is a copy in memory: a consumer that starts again reads from the beginning.
// That is enough where the topic is compacted or keeps everything. Where old
// messages are dropped, the copy holds what was told since: [State.Complete] says
// so, and a resync makes it whole.
//
// The package imports no client. examples/go has sources for franz-go and nats.go,
// of some forty lines each.
package consumer
