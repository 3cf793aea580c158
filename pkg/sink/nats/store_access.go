package nats

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// CheckpointSubjects are those that a store with the default bucket publishes to; it subscribes
// to nothing but its connection's inbox.
func CheckpointSubjects(id event.Identity) []string {
	stream, prefix := place(BucketName(id))
	const api = "$JS.API."
	return []string{
		prefix + ">",
		api + "STREAM.INFO." + stream, api + "STREAM.CREATE." + stream, api + "STREAM.PURGE." + stream,
		api + "STREAM.MSG.GET." + stream,
		api + "CONSUMER.CREATE." + stream + ".*", api + "CONSUMER.MSG.NEXT." + stream + ".*", api + "CONSUMER.DELETE." + stream + ".*",
	}
}

// BucketDefinition is the JSON of the stream behind the bucket, as a store creates it;
// `nats stream add --config` takes it.
func BucketDefinition(id event.Identity, replicas int) ([]byte, error) {
	stream, prefix := place(BucketName(id))
	return json.MarshalIndent(definition(stream, prefix, id, max(replicas, 1)), "", "  ")
}

// place is the stream behind a bucket, and the prefix of its subjects.
func place(bucket string) (stream, prefix string) { return "KV_" + bucket, "$KV." + bucket + "." }

func definition(stream, prefix string, id event.Identity, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        stream,
		Description: "Checkpoint of kubebridge " + id.Bridge + "/" + id.Sink + ", cluster " + id.Cluster,
		Subjects:    []string{prefix + ">"},
		Storage:     jetstream.FileStorage,
		Replicas:    replicas,
		Discard:     jetstream.DiscardNew,
		DenyDelete:  true,
		AllowRollup: true, AllowDirect: true, // what NATS tools expect of a bucket
		MaxMsgsPerSubject:  1,
		AllowAtomicPublish: true,
	}
}

// fits refuses a stream that is no bucket for a checkpoint.
func fits(c jetstream.StreamConfig) error {
	switch {
	case !c.AllowAtomicPublish:
		return fmt.Errorf("%w: its stream has allow_atomic false, want true (NATS 2.12 or newer)", checkpoint.ErrUnusable)
	case c.MaxMsgsPerSubject != 1:
		return fmt.Errorf("%w: it keeps %d values of a key, want 1", checkpoint.ErrUnusable, c.MaxMsgsPerSubject)
	case c.MaxAge > 0:
		return fmt.Errorf("%w: it forgets values after %v, want never", checkpoint.ErrUnusable, c.MaxAge)
	}
	return nil
}
