package nats

import (
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Grant is a subject that a connection must be allowed, and what for.
type Grant struct{ Subject, Why string }

// Grants are the permissions of a user. The zero value is for a server without permissions.
type Grants struct{ Publish, Subscribe []Grant }

func (g *Grants) publish(why string, subjects ...string) {
	for _, s := range subjects {
		g.Publish = append(g.Publish, Grant{s, why})
	}
}

const (
	api = "$JS.API."
	// userInfo is the subject on which a server answers a user with its permissions; see [Check].
	userInfo = "$SYS.REQ.USER.INFO"
)

// Grants returns the subjects that the sink publishes and subscribes to. It returns none for an
// embedded server, on which the bridge has all permissions.
func (c Config) Grants(id event.Identity) (g Grants, err error) {
	c, err = c.Complete()
	if err != nil || c.Embedded != nil {
		return g, err
	}
	allow, api := g.publish, c.api()
	allow("events", c.subjects(id)...)
	g.Subscribe = []Grant{{c.inbox(id) + ".>", "answers to this bridge alone"}}
	stream := c.StreamName(id.Cluster)
	found := stream
	switch {
	case c.Delivery == exactlyOnce:
		allow("fences a predecessor", termSubject(id))
		allow("adopts an empty stream, adds subjects that it lacks", api+"STREAM.UPDATE."+stream)
		allow("reads back what a crash interrupted", c.consumerAPI(stream)...)
		allow("reads what the replica that answers may lack, and what a stream with too many consumers keeps", api+"STREAM.MSG.GET."+stream)
	case c.Delivery == atLeastOnce && c.Stream.Name == "":
		allow("finds the stream that takes the subjects; give nats.stream.name to need less", api+"STREAM.NAMES")
		found = "*"
	}
	if c.Delivery != atMostOnce {
		allow("looks the stream up", api+"STREAM.INFO."+found)
		if *c.Stream.Create {
			allow("creates it when it is missing (nats.stream.create)", api+"STREAM.CREATE."+stream)
		}
	}
	allow("lets `bridge validate --connect` say what is not granted (optional)", userInfo)
	return g, nil
}

// consumerAPI returns the API subjects for reading a stream.
func (c Config) consumerAPI(stream string) []string {
	api := c.api()
	return []string{api + "CONSUMER.CREATE." + stream + ".*", api + "CONSUMER.MSG.NEXT." + stream + ".*", api + "CONSUMER.DELETE." + stream + ".*"}
}

// CheckpointGrants are the subjects that a [Store] publishes to beside the sink's. It
// subscribes to nothing but its connection's inbox.
func (c Config) CheckpointGrants(id event.Identity) []Grant {
	var g Grants
	stream, prefix := bucketStream(BucketName(id))
	api := c.api()
	g.publish("the checkpoint", append(c.consumerAPI(stream),
		c.keyPrefix()+prefix+">", api+"STREAM.INFO."+stream, api+"STREAM.CREATE."+stream, api+"STREAM.PURGE."+stream, api+"STREAM.MSG.GET."+stream)...)
	return g.Publish
}

// StreamDefinition is the JSON of the stream that the sink would create, as `nats
// stream add --config` takes it. It is nil if the sink has no stream or an embedded server. Without
// the cluster's UID the definition has no owner, and the bridge adopts the stream.
func (c Config) StreamDefinition(id event.Identity) ([]byte, error) {
	c, err := c.Complete()
	if err != nil || c.Delivery == atMostOnce || c.Embedded != nil {
		return nil, err
	}
	subjects := c.subjects(id)
	var whose map[string]string
	if c.Delivery == exactlyOnce {
		subjects = append(subjects, termSubject(id))
		whose = owner(id, nil, 0)
	}
	stream := c.definition(id, subjects, whose)
	if id.ClusterUID == "" {
		stream.Metadata = nil
	}
	return json.MarshalIndent(stream, "", "  ")
}

// definition returns the stream as the sink creates it. A stream with an owner belongs to one
// pipeline.
func (c Config) definition(id event.Identity, subjects []string, owner map[string]string) jetstream.StreamConfig {
	maxBytes := int64(c.Stream.MaxBytes)
	if maxBytes == 0 {
		maxBytes = -1
	}
	return jetstream.StreamConfig{
		Name:        c.StreamName(id.Cluster),
		Description: "Changes of the Kubernetes cluster " + id.Cluster,
		Subjects:    subjects,
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Discard:     jetstream.DiscardOld,
		Replicas:    c.Stream.Replicas,
		MaxAge:      c.Stream.MaxAge,
		MaxBytes:    maxBytes,
		AllowDirect: true,

		ConsumerLimits: c.consumerLimits(),

		AllowAtomicPublish: owner != nil,
		Metadata:           owner,
	}
}

// BucketDefinition is the JSON of the stream behind a checkpoint's bucket, as a [Store] creates
// it; `nats stream add --config` takes it.
func BucketDefinition(id event.Identity, replicas int) ([]byte, error) {
	stream, prefix := bucketStream(BucketName(id))
	return json.MarshalIndent(bucketDefinition(stream, prefix, id, max(replicas, 1)), "", "  ")
}

func (c Config) consumerLimits() (l jetstream.StreamConsumerLimits) {
	if c.Embedded != nil {
		l.InactiveThreshold = readerIdle
	}
	return l
}

const bucketPrefix = "KV_" // of the names of streams that are buckets

// bucketStream is the stream behind a bucket, and the prefix of its subjects.
func bucketStream(bucket string) (stream, prefix string) {
	return bucketPrefix + bucket, "$KV." + bucket + "."
}

// bucketDescription begins the description of a pipeline's bucket. The cluster's name follows, which may change.
func bucketDescription(id event.Identity) string {
	return "Checkpoint of kubebridge " + id.Bridge + "/" + id.Sink + ", "
}

func bucketDefinition(stream, prefix string, id event.Identity, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        stream,
		Description: bucketDescription(id) + "cluster " + id.Cluster,
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

// subjects are the patterns of the records' subjects.
func (c Config) subjects(id event.Identity) []string {
	subjects := c.eventSubjects(id)
	if c.DeadLetter != nil {
		subjects = append(subjects, c.deadRoot(id)+".>")
	}
	return subjects
}

// eventSubjects returns the subjects of a sink's events. The subject of each of its entries is within them.
func (c Config) eventSubjects(id event.Identity) []string {
	root := subjectRoot(c.Subject, id.Cluster)
	if strings.HasSuffix(root, ">") {
		return []string{root}
	}
	return []string{root, root + ".>"} // collection events need room
}
