package kafka

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// says checks that an error has all words, and none of the others.
func says(t *testing.T, err error, has []string, lacks ...string) {
	t.Helper()
	text := "no error"
	if err != nil {
		text = err.Error()
	}
	for _, word := range has {
		if !strings.Contains(text, word) {
			t.Errorf("%s: it does not say %q", text, word)
		}
	}
	for _, word := range lacks {
		if strings.Contains(text, word) {
			t.Errorf("%s: it says %q, which does not help", text, word)
		}
	}
}

// advertise makes the brokers advertise an address where nobody listens.
func (b *bus) advertise() {
	b.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		r := req.(*kmsg.MetadataRequest)
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		resp.ControllerID = 0
		broker := kmsg.NewMetadataResponseBroker()
		broker.Host, broker.Port = "127.0.0.1", 9
		resp.Brokers = append(resp.Brokers, broker)
		for _, t := range r.Topics {
			one := kmsg.NewMetadataResponseTopic()
			one.Topic, one.ErrorCode = t.Topic, kerr.UnknownTopicOrPartition.Code
			resp.Topics = append(resp.Topics, one)
		}
		return resp, nil, true
	})
}

// A listener that the brokers advertise and that does not answer is not a missing topic, nor a missing permission.
func TestAdvertisedListener(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.advertise()
	has, lacks := []string{"127.0.0.1:9", "advertised.listeners", "connection refused"}, []string{"create it", "CREATE", "credentials"}
	o := storeOptions(t, b)
	o.Client = []kgo.Opt{kgo.RetryTimeout(time.Second)}
	s, err := NewStore(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	says(t, s.Load(t.Context()), has, lacks...)
	checked, _, err := CheckStore(t.Context(), o)
	if checked != nil {
		checked.Close()
	}
	says(t, err, has, lacks...)

	bus, err := New(o.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	if err := bus.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	_, err = bus.Write(t.Context(), number("k8s.test").batch(1, 0))
	says(t, err, has, lacks...)
	if errors.As(err, new(*sink.RouteError)) {
		t.Errorf("%v is an error of one topic", err)
	}
	_, err = Check(t.Context(), o.Options, []string{"k8s.test"})
	says(t, err, has, lacks...)
}

// A broker that was reached before is down: its address is right.
func TestBrokerIsDownLater(t *testing.T) {
	t.Parallel()
	b := startBus(t, kfake.NumBrokers(2))
	o := storeOptions(t, b)
	o.Config.Brokers = b.brokers[:1]
	s := loadStore(t, o)
	for _, address := range b.brokers {
		if conn, err := s.admin.dial(t.Context(), "tcp", address); err == nil {
			conn.Close()
		}
	}
	b.Close()
	for _, address := range b.brokers {
		_, err := s.admin.dial(t.Context(), "tcp", address)
		says(t, err, []string{"refused"}, "advertised")
	}
}

// Brokers that allow only shorter transactions than the bridge needs say so with a code. The error must have the setting and the value. A
// timeout that was raised for a slow bus goes back to the configured one.
func TestTransactionTimeoutTooLong(t *testing.T) {
	t.Parallel()
	b := startBus(t, kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "5000"}))
	o := storeOptions(t, b)
	o.TransactionTimeout = 0
	s, err := NewStore(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	says(t, s.Load(t.Context()), []string{"transaction.max.timeout.ms", "15000 ms", "raise it"}, "address")

	later := loadStore(t, storeOptions(t, b))
	later.writer.timeout = 10 * time.Second
	later.Release()
	if err := later.Commit(t.Context(), []event.KV{kv("e/a", "1")}); err == nil {
		t.Fatal("brokers accept any timeout")
	}
	if err := later.Commit(t.Context(), []event.KV{kv("e/a", "1")}); err != nil {
		t.Errorf("with the configured timeout: %v", err)
	}
}

// Kafka refuses a name that differs from that of another topic only in '.' and '_'. To create such a topic by hand, or to get more permissions,
// does not help.
func TestTopicNameCollides(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "k8s_test", 1, 0)
	b.topic(t, "check_point", 1, 0)
	o := storeOptions(t, b)
	bus, err := New(o.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	if err := bus.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	_, err = bus.Write(t.Context(), number("k8s.test").batch(1, 0))
	says(t, err, []string{`"k8s.test"`, "'.' and '_'", "another name"}, "by hand", "let ")
	if !errors.As(err, new(*sink.RouteError)) {
		t.Errorf("%v is no error of one topic", err)
	}
	o.Topic = "check.point"
	s, err := NewStore(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	says(t, s.Load(t.Context()), []string{`"check.point"`, "'.' and '_'", "checkpoint.kafka.topic"}, "create it", "CREATE")
}
