package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// isAny reports whether err is one of targets.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
}

// tooLarge reports whether the broker found a record batch too large.
func tooLarge(err error) bool {
	return isAny(err, kafka.MessageSizeTooLarge, kafka.RecordListTooLarge)
}

// aboutRecords reports whether the broker rejected the content of a request: of
// a single record, this proves that it is the record.
func aboutRecords(err error) bool { return tooLarge(err) || errors.Is(err, kafka.InvalidRecord) }

// refused reports whether the broker has rejected the credentials.
func refused(err error) bool {
	return isAny(err, kafka.SASLAuthenticationFailed, kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState)
}

func (s *Sink) credentialsHint() string {
	if s.config.SASL.Mechanism == "" {
		return "the brokers want credentials: set sasl"
	}
	switch s.config.SASL.Mechanism {
	case mechanismOAuth:
		return fmt.Sprintf("check the token in sasl.tokenFile (%s)", s.config.SASL.TokenFile)
	case mechanismAWS:
		return "allow the AWS role or user kafka-cluster:Connect on the cluster, and check sasl.region and this machine's clock"
	}
	return fmt.Sprintf("check sasl.mechanism (%s), sasl.username (%s) and sasl.password", s.config.SASL.Mechanism, s.config.SASL.Username)
}

// explainConnect says what to do about an error of Open.
func (s *Sink) explainConnect(ctx context.Context, err error) error {
	at := "Kafka at " + strings.Join(s.config.Brokers, ", ")
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("connect to %s: %w", at, ctx.Err())
	case errors.As(err, new(*credentialsError)): // says enough
		return fmt.Errorf("connect to %s: %w", at, err)
	case refused(err):
		return &sink.RefusedError{What: at, Err: err, Hint: s.credentialsHint()}
	case certificateRefused(err):
		return &sink.RefusedError{What: at, Err: err, Hint: s.certificateHint()}
	case unverified(err):
		return &sink.RefusedError{What: at, Err: err, Hint: unverifiedHint}
	}
	return fmt.Errorf("connect to %s: %w: check the addresses, the network, and whether the brokers want TLS or SASL", at, err)
}

// unverified reports whether we do not accept the broker's certificate.
func unverified(err error) bool { return errors.As(err, new(*tls.CertificateVerificationError)) }

const unverifiedHint = "check tls.ca, which has to have signed the brokers' certificates, and tls.serverName"

// certificateRefused reports whether the broker has rejected our certificate, or
// that we have none: by the alerts that RFC 8446, section 6.2, has for that.
func certificateRefused(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return false
	}
	alert := reflect.ValueOf(op.Err) // crypto/tls has no name for its type
	return alert.Kind() == reflect.Uint8 && slices.Contains([]uint64{
		42,  // bad_certificate
		43,  // unsupported_certificate
		44,  // certificate_revoked
		45,  // certificate_expired
		46,  // certificate_unknown
		48,  // unknown_ca
		49,  // access_denied
		116, // certificate_required
	}, alert.Uint())
}

func (s *Sink) certificateHint() string {
	if s.config.TLS.Cert == "" {
		return "the brokers want a client certificate: set tls.cert and tls.key"
	}
	return fmt.Sprintf("check tls.cert (%s): who signed it, and until when it is valid", s.config.TLS.Cert)
}

// user names who is not allowed something.
func (s *Sink) user() string {
	switch {
	case s.config.SASL.Username != "":
	case s.config.SASL.Mechanism == mechanismOAuth:
		return "the token's user"
	case s.config.SASL.Mechanism == mechanismAWS:
		return "the AWS role or user"
	case s.config.TLS.Cert != "":
		return "the certificate's user"
	default:
		return "the anonymous user"
	}
	return fmt.Sprintf("user %q", s.config.SASL.Username)
}

// explain adds to an error what to do about it.
func (s *Sink) explain(err error) error {
	hint := ""
	switch {
	case isAny(err, context.DeadlineExceeded, os.ErrDeadlineExceeded, kgo.ErrClientClosed):
		// Not wrapped: it is not the caller's deadline.
		return errors.New("no answer in time: check the broker's load and the network")
	case isAny(err, kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed):
		hint = "allow " + s.user() + " WRITE and DESCRIBE on the topic"
	case refused(err):
		hint = s.credentialsHint()
	case certificateRefused(err):
		hint = s.certificateHint()
	case unverified(err):
		hint = unverifiedHint
	case isAny(err, kafka.UnknownTopicOrPartition, protocol.ErrNoTopic, protocol.ErrNoPartition):
		hint = "the topic was deleted or has lost partitions"
	case isAny(err, kafka.LeaderNotAvailable, kafka.NotLeaderForPartition, kafka.BrokerNotAvailable,
		kafka.ReplicaNotAvailable, kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch, protocol.ErrNoLeader):
		hint = "the partition's leader is moving or down: check the brokers if this lasts"
	case isAny(err, kafka.NotEnoughReplicas, kafka.NotEnoughReplicasAfterAppend):
		hint = "too few replicas are in sync for min.insync.replicas: check the brokers"
	case errors.Is(err, kafka.RequestTimedOut):
		hint = "the replicas did not confirm in time: check the brokers"
	case errors.Is(err, kafka.KafkaStorageError):
		hint = "check the broker's disk"
	case errors.Is(err, kafka.InvalidTimestamp):
		hint = "raise the topic's message.timestamp.before.max.ms: events that waited for Kafka keep the time they were seen; or this machine's clock is ahead of the broker's (message.timestamp.after.max.ms)"
	case isAny(err, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed):
		hint = "the broker has closed the connection"
	case errors.As(err, new(*net.OpError)):
		hint = "check the brokers and the network"
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, hint)
}

// brokerError is an error of franz-go that kafka-go has a type for.
type brokerError struct {
	code kafka.Error
	err  error
}

func (e *brokerError) Error() string   { return e.err.Error() }
func (e *brokerError) Unwrap() []error { return []error{e.code, e.err} }

// fromFranz makes an error of franz-go known to the functions above.
func fromFranz(err error) error {
	var k *kerr.Error
	if !errors.As(err, &k) {
		return err
	}
	return &brokerError{kafka.Error(k.Code), err}
}

// refusal is one topic that is not there, or that we may not use.
type refusal struct {
	topic string
	err   error
}

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }

// refusalOf makes full a refusal where the cause says that only this topic is
// concerned.
func refusalOf(topic string, cause, full error) error {
	if isAny(cause, kafka.TopicAuthorizationFailed, kafka.UnknownTopicOrPartition, kafka.PolicyViolation) {
		return &refusal{topic, full}
	}
	return full
}

// routeError tells the lane of a refusal.
func routeError(b *event.Batch, err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	i := slices.IndexFunc(b.Records, func(rec event.Record) bool { return rec.Route == r.topic })
	return &sink.RouteError{Index: i, Route: r.topic, Err: err}
}
