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

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// The errors of both client libraries are compared with errors of kerr: see [clientError].

// isAny reports whether err is one of targets.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
}

// tooLarge reports whether the broker found a record batch too large.
func tooLarge(err error) bool {
	return isAny(err, kerr.MessageTooLarge, kerr.RecordListTooLarge)
}

// aboutRecords reports whether the broker rejected the content of a request. If the request has a
// single record, this record is the reason.
func aboutRecords(err error) bool { return tooLarge(err) || errors.Is(err, kerr.InvalidRecord) }

// refused reports whether the broker has rejected the credentials.
func refused(err error) bool {
	return isAny(err, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState)
}

func (a *access) credentialsHint() string {
	if a.config.SASL.Mechanism == "" {
		return "the brokers want credentials: set sasl"
	}
	switch a.config.SASL.Mechanism {
	case mechanismOAuth:
		return fmt.Sprintf("check the token in sasl.tokenFile (%s)", a.config.SASL.TokenFile)
	case mechanismAWS:
		return "allow the AWS role or user kafka-cluster:Connect on the cluster, and check sasl.region and this machine's clock"
	}
	password := "sasl.password"
	if file := a.config.SASL.PasswordFile; file != "" {
		password = fmt.Sprintf("sasl.passwordFile (%s)", file)
	}
	return fmt.Sprintf("check sasl.mechanism (%s), sasl.username (%s) and %s", a.config.SASL.Mechanism, a.config.SASL.Username, password)
}

// explainConnect adds the remedy to an error of Open.
func (a *access) explainConnect(ctx context.Context, err error) error {
	at := "Kafka at " + strings.Join(a.config.Brokers, ", ")
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("connect to %s: %w", at, ctx.Err())
	case errors.As(err, new(*credentialsError)): // has a remedy already
		return fmt.Errorf("connect to %s: %w", at, err)
	case refused(err):
		return &sink.RefusedError{What: at, Err: err, Hint: a.credentialsHint()}
	case certificateRefused(err):
		return &sink.RefusedError{What: at, Err: err, Hint: a.certificateHint()}
	case unverified(err):
		return &sink.RefusedError{What: at, Err: err, Hint: unverifiedHint}
	}
	return fmt.Errorf("connect to %s: %w: check the addresses, the network, and whether the brokers want TLS or SASL", at, err)
}

// unverified reports whether the client does not accept the broker's certificate.
func unverified(err error) bool { return errors.As(err, new(*tls.CertificateVerificationError)) }

const unverifiedHint = "check tls.ca, which has to have signed the brokers' certificates, and tls.serverName"

// certificateRefused reports whether the broker has rejected the client certificate, or
// requires one: by the alerts of RFC 8446, section 6.2.
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

func (a *access) certificateHint() string {
	if a.config.TLS.Cert == "" {
		return "the brokers want a client certificate: set tls.cert and tls.key"
	}
	return fmt.Sprintf("check tls.cert (%s): who signed it, and until when it is valid", a.config.TLS.Cert)
}

// user names the user for messages about missing permissions.
func (a *access) user() string {
	switch {
	case a.config.SASL.Username != "":
	case a.config.SASL.Mechanism == mechanismOAuth:
		return "the token's user"
	case a.config.SASL.Mechanism == mechanismAWS:
		return "the AWS role or user"
	case a.config.TLS.Cert != "":
		return "the certificate's user"
	default:
		return "the anonymous user"
	}
	return fmt.Sprintf("user %q", a.config.SASL.Username)
}

// errNoAnswer is returned for a request that was given up.
var errNoAnswer = errors.New("no answer in time: check the broker's load and the network")

// explain adds the remedy to an error.
func (a *access) explain(err error) error {
	hint := ""
	var advertised *advertisedError
	switch {
	case errors.As(err, &advertised): // has a remedy already
		return advertised
	case isAny(err, context.DeadlineExceeded, os.ErrDeadlineExceeded, kgo.ErrClientClosed):
		return errNoAnswer // not wrapped: it is not the caller's deadline
	case isAny(err, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed):
		hint = "allow " + a.user() + " WRITE and DESCRIBE on the topic"
	case refused(err):
		hint = a.credentialsHint()
	case certificateRefused(err):
		hint = a.certificateHint()
	case unverified(err):
		hint = unverifiedHint
	case isAny(err, kerr.UnknownTopicOrPartition):
		hint = "the topic was deleted or has lost partitions"
	case isAny(err, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.BrokerNotAvailable,
		kerr.ReplicaNotAvailable, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch):
		hint = "the partition's leader is moving or down: check the brokers if this lasts"
	case isAny(err, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend):
		hint = "too few replicas are in sync for min.insync.replicas: check the brokers"
	case errors.Is(err, kerr.RequestTimedOut):
		hint = "the replicas did not confirm in time: check the brokers"
	case errors.Is(err, kerr.KafkaStorageError):
		hint = "check the broker's disk"
	case errors.Is(err, kerr.InvalidTimestamp):
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

// refusal is the error of one topic that is missing, or that the bridge may not use.
type refusal struct {
	topic string
	err   error
}

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }

// refusalOf makes full a refusal if the cause concerns only this
// topic.
func refusalOf(topic string, cause, full error) error {
	if isAny(cause, kerr.TopicAuthorizationFailed, kerr.UnknownTopicOrPartition, kerr.PolicyViolation, kerr.InvalidTopicException) {
		return &refusal{topic, full}
	}
	return full
}

// routeError converts a refusal to a [sink.RouteError].
func routeError(b *event.Batch, err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	i := slices.IndexFunc(b.Records, func(rec event.Record) bool { return rec.Route == r.topic })
	return &sink.RouteError{Index: i, Route: r.topic, Err: err}
}
