package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A broker that hangs up while it authenticates us may refuse us, or be going
// down. Only so many times in a row are a refusal.
const (
	hangUps     = 3
	hangUpPause = 200 * time.Millisecond
)

// errHungUp is what some brokers do instead of refusing credentials, and what any
// broker may do that goes down.
var errHungUp = fmt.Errorf("the broker hung up while authenticating: %w", kerr.SaslAuthenticationFailed)

// admin asks the brokers and reads topics with one franz-go client, which is made when it is needed. A failure ends the
// client: the next one learns the cluster's layout again. One goroutine uses an admin.
type admin struct {
	*access
	client *kgo.Client        // nil: none
	kill   context.CancelFunc // of client: it ends whatever it waits for
	// authenticating counts the client's authentications that have begun, less those that succeeded.
	authenticating *atomic.Int32
}

func newAdmin(a *access) *admin { return &admin{access: a} }

// open connects and authenticates. Wrong credentials are a [sink.RefusedError]; brokers that cannot be reached are an
// ordinary error.
func (a *admin) open(ctx context.Context) error {
	a.close()
	err := a.dialAll(ctx)
	for attempt := 1; attempt < hangUps && errors.Is(err, errHungUp); attempt++ {
		_ = pause(ctx, hangUpPause) // dialAll knows of ctx
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

// dialAll makes a client that has reached a broker. The client itself would try wrong credentials again, in silence.
func (a *admin) dialAll(ctx context.Context) error {
	a.authenticating = &atomic.Int32{}
	life, kill := context.WithCancel(context.Background())
	c, err := kgo.NewClient(append(a.options(a.authenticating), readOptions(life)...)...)
	if err != nil {
		kill()
		return err
	}
	a.client, a.kill = c, kill
	return a.bounded(ctx, dialTimeout, func(ctx context.Context) (err error) {
		for _, seed := range c.SeedBrokers() {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = []kmsg.MetadataRequestTopic{} // none: the brokers are enough
			if _, err = seed.Request(ctx, req); err == nil || ctx.Err() != nil || final(a.cause(err)) {
				return err
			}
		}
		return err
	})
}

// final reports whether other brokers would say the same, and might lock an account for it.
func final(err error) bool {
	return refused(err) || certificateRefused(err) || unverified(err) || errors.As(err, new(*credentialsError))
}

// answered reports whether a broker has answered, with an error.
func answered(err error) bool { return errors.As(err, new(*kerr.Error)) && !refused(err) }

// do calls fn with the client, for timeout at most; 0: as long as it takes. Unless the brokers answer, the client is given
// up: a request's own context does not end the wait for a broker that takes a connection and does not answer. The error of
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

// cause is the reason of an error of the client, without the client's words around it.
func (a *admin) cause(err error) error {
	var shards *kadm.ShardErrors
	if errors.As(err, &shards) && len(shards.Errs) > 0 {
		err = shards.Errs[0].Err
	}
	if a.authenticating.Load() > 0 && isAny(err, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET) {
		return errHungUp
	}
	var first *kgo.ErrFirstReadEOF
	if errors.As(err, &first) { // what it suspects is in the hints of explain
		return first.Unwrap()
	}
	return err
}

// close ends the client. The next request makes another.
func (a *admin) close() {
	if a.client != nil {
		a.kill()
		a.client.Close()
		a.client = nil
	}
}

// describeTopics returns what the brokers say of topics, with our permissions.
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

// describeConfigs calls fn with each topic's configuration, or why it cannot be read. Not kadm, which makes one topic's
// refusal that of all.
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

// transactionVersion returns the brokers' level of the feature transaction.version (KIP-584); 0: they do not have it.
func (a *admin) transactionVersion(ctx context.Context) (level int, err error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kubebridge", "1"
	err = a.do(ctx, dialTimeout, func(ctx context.Context, c *kgo.Client) error {
		found, err := req.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		for _, f := range found.FinalizedFeatures {
			if f.Name == "transaction.version" {
				level = int(f.MaxVersionLevel)
			}
		}
		return kerr.ErrorForCode(found.ErrorCode)
	})
	return level, err
}

// createTopics creates topics, or asks whether they could be created. It returns why not, by topic.
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

// brokers is how many brokers the cluster has; 0: it does not answer.
func (a *admin) brokers(ctx context.Context) (n int) {
	_ = a.do(ctx, dialTimeout, func(ctx context.Context, c *kgo.Client) error {
		all, err := kadm.NewClient(c).ListBrokers(ctx)
		n = len(all)
		return err
	})
	return n
}
