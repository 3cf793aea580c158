package config

import (
	"testing"

	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// The encoder recognizes a default key or subject by its text, and appends {entry}. If the sinks had
// other defaults, two entries would share keys on a compacted topic.
func TestDefaultRoutes(t *testing.T) {
	k, err := kafka.Config{Brokers: []string{"kafka:9092"}}.Complete()
	if err != nil || k.Key != shape.DefaultKey {
		t.Errorf("the default key is %q, %v; want %q", k.Key, err, shape.DefaultKey)
	}
	n, err := nats.Config{URL: "nats://127.0.0.1:4222"}.Complete()
	if err != nil || n.Subject != shape.DefaultSubject {
		t.Errorf("the default subject is %q, %v; want %q", n.Subject, err, shape.DefaultSubject)
	}
}
