package attribution

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/topic"
)

// Changes wait for their records until the topic and the file are read: while the brokers are away, or messages of days are still to be read, no change is
// given up.
func TestChangesWaitForTheTopic(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "audit"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	options := []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}
	client, err := kgo.NewClient(options...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const message = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"1","stage":"ResponseComplete","requestURI":"/","verb":"create","user":{"username":"alice"},"objectRef":{"resource":"pods"},"responseStatus":{"code":201}}`
	const azure = `{"records":[{"category":"kube-audit","resourceId":"/SUBSCRIPTIONS/1","properties":{"log":"{}"}}]}` // the configuration names no cluster
	for _, value := range []string{message, message, azure, message} {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "audit", Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}

	a := newInputs(t, nil)
	a.spec.Topic = func() (topic.Options, error) {
		return topic.Options{Client: options, Topic: "audit", Parser: audit.NewParser(audit.Options{}), Refresh: 50 * time.Millisecond}, nil
	}
	early := time.Now()
	a.hasRead(fromFile, early)
	if c := a.caughtUp(); !c.at.IsZero() {
		t.Errorf("the topic is not read, and everything is known up to %s", c.at)
	}
	begun := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.ReadTopic(ctx) }()
	await(t, "the end of the topic is not reached", func() bool { return !a.read(fromTopic).at.IsZero() })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if s := a.Status(); s.Unparsable != 1 || !strings.Contains(s.Failing, "Azure") || s.LastError == nil || !strings.Contains(s.LastError.Advice, "audit.kafka.azureResourceId") {
		t.Errorf("the status does not say that Azure records are not used: %+v", s)
	}
	if c := a.read(fromTopic); c.at.Before(begun) || c.number != 3 {
		t.Errorf("the records up to number %d are those that were written before %s; want 3, and after %s", c.number, c.at, begun)
	}
	if c := a.caughtUp(); !c.at.Equal(early) || c.number != 3 {
		t.Errorf("with the file: the records up to number %d are those that were written before %s; want 3 and %s", c.number, c.at, early)
	}
	a.spec.File = nil
	if c := a.caughtUp(); c != a.read(fromTopic) {
		t.Errorf("without a file: %+v, want %+v", c, a.read(fromTopic))
	}
}
