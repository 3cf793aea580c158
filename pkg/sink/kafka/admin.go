package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A broker that closes the connection during the authentication may refuse the credentials, or be shutting
// down. Only this number of times in a row counts as a refusal.
const (
	hangUps     = 3
	hangUpPause = 200 * time.Millisecond
)

// errHungUp: the broker closed the connection during the authentication. Some brokers do this instead of refusing credentials, and any
// broker may do this while it shuts down.
var errHungUp = fmt.Errorf("the broker hung up while authenticating: %w", kerr.SaslAuthenticationFailed)

// admin sends requests to the brokers and reads topics with one franz-go client, which is made on first use. A failure ends the
// client, and the next client reads the cluster's layout again. One goroutine uses an admin.
type admin struct {
	*access
	client *kgo.Client        // nil: none
	kill   context.CancelFunc // of client: ends all its waits
	// authenticating is the number of begun authentications of the client minus the number of successful ones.
	authenticating *atomic.Int32
}

func newAdmin(a *access) *admin { return &admin{access: a} }

// open connects and authenticates. Wrong credentials are a [sink.RefusedError]; brokers that cannot be reached are an
// ordinary error.
func (a *admin) open(ctx context.Context) error {
	a.close()
	err := a.dialAll(ctx)
	for attempt := 1; attempt < hangUps && errors.Is(err, errHungUp); attempt++ {
		_ = pause(ctx, hangUpPause) // dialAll checks ctx
		err = a.dialAll(ctx)
	}
	if err != nil {
		return a.explainConnect(ctx, err)
	}
	return nil
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dialAll makes a client that has reached a broker. The client itself would retry wrong credentials without an error.
func (a *admin) dialAll(ctx context.Context) error {
	a.authenticating = &atomic.Int32{}
	life, kill := context.WithCancel(context.Background())
	c, err := kgo.NewClient(append(a.options(a.authenticating), readOptions(life)...)...)
	if err != nil {
		kill()
		return err
	}
	a.client, a.kill = c, kill
	return a.bounded(ctx, dialTimeout, func(ctx context.Context) error { return a.reach(ctx, c.SeedBrokers()) })
}

// reach sends a small request to one broker after the other, until one answers. The client does not repeat these requests.
func (a *admin) reach(ctx context.Context, brokers []*kgo.Broker) (err error) {
	for _, broker := range brokers {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{} // no topics: the list of brokers is enough
		if _, err = broker.Request(ctx, req); err == nil || ctx.Err() != nil || final(a.cause(err)) {
			return err
		}
	}
	return err
}

// final reports whether an error is the same on all brokers, so that retries are useless and might lock an account.
func final(err error) bool {
	return refused(err) || certificateRefused(err) || unverified(err) || errors.As(err, new(*credentialsError))
}

// answered reports whether a broker has answered, with an error.
func answered(err error) bool { return errors.As(err, new(*kerr.Error)) && !refused(err) }

// do calls fn with the client, for at most timeout; 0: without a limit. If the brokers do not answer, do closes the client,
// because the context of a request does not end the wait for a broker that accepts a connection and does not answer. The error of
// a timeout is errNoAnswer.
func (a *admin) do(ctx context.Context, timeout time.Duration, fn func(context.Context, *kgo.Client) error) error {
	if a.client == nil {
		if err := a.dialAll(ctx); err != nil {
			return err
		}
	}
	c := a.client
	return a.bounded(ctx, timeout, func(ctx context.Context) error { return fn(ctx, c) })
}

func (a *admin) bounded(ctx context.Context, timeout time.Duration, fn func(context.Context) error) error {
	within, cancel := context.WithCancel(ctx)
	if timeout > 0 {
		within, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	stop := context.AfterFunc(within, a.kill)
	err := fn(within)
	if !stop() || err != nil && !answered(err) {
		a.close()
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case within.Err() != nil:
		return errNoAnswer
	}
	return a.cause(err)
}

// cause returns the cause of an error of the client, without the client's text around it.
func (a *admin) cause(err error) error {
	var shards *kadm.ShardErrors
	if errors.As(err, &shards) && len(shards.Errs) > 0 {
		err = shards.Errs[0].Err
	}
	if a.authenticating.Load() > 0 && isAny(err, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET) {
		return errHungUp
	}
	var first *kgo.ErrFirstReadEOF
	if errors.As(err, &first) { // explain has hints instead of the client's guesses
		return first.Unwrap()
	}
	return err
}

const (
	// pingEvery is the pause between two small requests to a quiet bus. pingTimeout bounds the time for the answer.
	pingEvery   = 5 * time.Second
	pingTimeout = 15 * time.Second
)

// ping finds out whether the brokers answer.
func (a *admin) ping(ctx context.Context) error {
	err := a.do(ctx, pingTimeout, func(ctx context.Context, c *kgo.Client) error {
		brokers := slices.Concat(c.DiscoveredBrokers(), c.SeedBrokers())
		return a.reach(ctx, append(brokers, brokers...)) // twice: a broker may have closed the connection because it was idle
	})
	if err != nil {
		return fmt.Errorf("send a small request to Kafka: %w", a.explain(err))
	}
	return nil
}

// finding is the result of the last look at something that can change. The zero value: nobody has looked.
type finding struct {
	at  time.Time
	err error
}

// latest returns the result of the last look, or of another one if the last is older than every; after a bad result, than pingEvery.
func (f *finding) latest(every time.Duration, look func() error) error {
	if f.err != nil {
		every = min(every, pingEvery)
	}
	if f.at.IsZero() || time.Since(f.at) >= every {
		f.err = look()
		f.at = time.Now()
	}
	return f.err
}

// close closes the client. The next request makes another one.
func (a *admin) close() {
	if a.client != nil {
		a.kill()
		a.client.Close()
		a.client = nil
	}
}

// describeTopics returns the brokers' descriptions of topics, with our permissions.
func (a *admin) describeTopics(ctx context.Context, names []string) (out *kmsg.MetadataResponse, err error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	err = a.do(ctx, dialTimeout, func(ctx context.Context, c *kgo.Client) (err error) {
		out, err = req.RequestWith(ctx, c)
		return err
	})
	return out, err
}

// describeConfigs calls fn with each topic's configuration, or with the error of reading it. It does not use kadm, which returns one
// topic's refusal for all topics.
func (a *admin) describeConfigs(ctx context.Context, names []string, fn func(topic string, configs map[string]string, err error)) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range names {
		one := kmsg.NewDescribeConfigsRequestResource()
		one.ResourceType, one.ResourceName = kmsg.ConfigResourceTypeTopic, name
		req.Resources = append(req.Resources, one)
	}
	return a.do(ctx, dialTimeout, func(ctx context.Context, c *kgo.Client) error {
		all, err := req.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		for _, found := range all.Resources {
			configs := map[string]string{}
			for _, one := range found.Configs {
				if one.Value != nil {
					configs[one.Name] = *one.Value
				}
			}
			fn(found.ResourceName, configs, kerr.ErrorForCode(found.ErrorCode))
		}
		return nil
	})
}

// features are properties of brokers that depend on their version.
type features struct {
	topicIDs           bool // KIP-516
	transactionVersion int  // the level of the feature transaction.version (KIP-584); 0: the brokers do not have it
}

// features asks a broker for its features. franz-go asks each broker the same, and does not return the answer. The request cannot
// replace the one for metadata in dialAll: brokers answer it before the authentication.
func (a *admin) features(ctx context.Context) (f features, err error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kubebridge", "1"
	err = a.do(ctx, dialTimeout, func(ctx context.Context, c *kgo.Client) error {
		found, err := req.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		for _, key := range found.ApiKeys {
			if key.ApiKey == kmsg.Metadata.Int16() && key.MaxVersion >= topicIDs {
				f.topicIDs = true
			}
		}
		for _, one := range found.FinalizedFeatures {
			if one.Name == "transaction.version" {
				f.transactionVersion = int(one.MaxVersionLevel)
			}
		}
		return kerr.ErrorForCode(found.ErrorCode)
	})
	return f, err
}

// createTopics creates topics, or asks whether they could be created. It returns errors by topic.
func (a *admin) createTopics(ctx context.Context, names []string, partitions, replicas int, configs map[string]string, dry bool) (failed map[string]error, err error) {
	pointers := map[string]*string{}
	for key, value := range configs {
		pointers[key] = &value
	}
	err = a.do(ctx, requestTimeout, func(ctx context.Context, c *kgo.Client) error {
		create := kadm.NewClient(c).CreateTopics
		if dry {
			create = kadm.NewClient(c).ValidateCreateTopics
		}
		all, err := create(ctx, int32(partitions), int16(replicas), pointers, names...)
		failed = map[string]error{}
		for _, one := range all {
			switch {
			case one.Err == nil:
			case one.ErrMessage == "":
				failed[one.Topic] = one.Err
			default:
				failed[one.Topic] = fmt.Errorf("%w: %s", one.Err, one.ErrMessage)
			}
		}
		return err
	})
	return failed, err
}

// brokers returns the number of brokers of the cluster; 0: the cluster does not answer.
func (a *admin) brokers(ctx context.Context) (n int) {
	_ = a.do(ctx, dialTimeout, func(ctx context.Context, c *kgo.Client) error {
		all, err := kadm.NewClient(c).ListBrokers(ctx)
		n = len(all)
		return err
	})
	return n
}
