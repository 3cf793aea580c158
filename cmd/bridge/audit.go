package main

import (
	"context"
	"math"
	"runtime/debug"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/forward"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/attribution/logfile"
	"github.com/kubebridge/kubebridge/internal/attribution/topic"
	"github.com/kubebridge/kubebridge/internal/attribution/webhook"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/leader"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
)

// maxChanges and maxRequests bound what waits for its record or its change, for each sink and storage.
const maxChanges, maxRequests = 100_000, 100_000

// defaultAuditBytes is the memory for audit records and changes that wait, of all sinks, if GOMEMLIMIT is not set.
const defaultAuditBytes = 512 << 20

// auditBytes returns the memory for audit records and changes of one of some sinks. limit is GOMEMLIMIT, math.MaxInt64 if that is not set: a quarter
// of it is for all sinks.
func auditBytes(limit int64, sinks int) int {
	all := int64(defaultAuditBytes)
	if limit < math.MaxInt64 {
		all = limit / 4
	}
	return int(all) / max(1, sinks)
}

// auditSpec describes where audit records come from; nil: nobody asks who made changes.
func auditSpec(c *config.Config, sinks int, elector *leader.Elector, log *zap.Logger) *attribution.Spec {
	a := &c.Audit
	if a.Path == "" {
		return nil
	}
	omits := func(what string) bool { return slices.Contains(a.Omit, what) }
	o := audit.Options{Denied: a.Denied, Ends: a.Complete, OmitGroups: omits("groups"), OmitSourceIPs: omits("sourceIPs"), OmitExtra: omits("extra")}
	if a.Kafka != nil {
		o.AzureResourceID = a.Kafka.AzureResourceID
	}
	parser := audit.NewParser(o)
	s := &attribution.Spec{
		Path: a.Path, Wait: a.Wait, Denied: a.Denied,
		Join:     join.Options{Complete: a.Complete, Settle: a.Settle, Keep: a.Keep, MaxOpen: 2 * a.RequestTimeout, MaxChanges: maxChanges, MaxRequests: maxRequests},
		MaxBytes: auditBytes(debug.SetMemoryLimit(-1), sinks),
		Inbox: func(ctx context.Context) (o inbox.Options, err error) {
			o.MaxBytes = int64(a.MaxBytes)
			o.Key, err = derivedKey(ctx, c, "kubebridge audit records", log)
			return o, err
		},
	}
	if a.File != "" {
		s.File = &logfile.Options{Path: a.File, Parser: parser}
	}
	if a.Kafka != nil {
		s.Topic = func() (topic.Options, error) { return auditTopic(c, parser, log) }
	}
	if w := &a.Webhook; w.Listen != "" {
		s.Webhook = &webhook.Options{
			Listen: w.Listen, Cert: w.CertFile, Key: w.KeyFile, ClientCA: w.ClientCAFile, ClientNames: w.ClientNames, TokenFile: w.TokenFile, Parser: parser,
		}
	}
	if r := &a.Replicas; r.Address != "" {
		s.Forward = &forward.Options{
			CAFile: r.CAFile, TokenFile: a.Webhook.TokenFile,
			Leader: func() string { return leaderAddress(r.Address, elector.Status()) },
		}
		if a.Webhook.ClientCAFile != "" {
			s.Forward.Cert, s.Forward.Key = a.Webhook.CertFile, a.Webhook.KeyFile
		}
	}
	return s
}

// leaderAddress returns the address of the leader's webhook; "": no other process leads.
func leaderAddress(form string, s leader.Status) string {
	if s.Holder == "" || s.Holder == s.Identity {
		return ""
	}
	return strings.ReplaceAll(form, "{host}", leader.Host(s.Holder))
}

// auditTopic returns how the topic with audit records is read. Its client is named like those of the sinks, with "audit" in place of a
// sink's name.
func auditTopic(c *config.Config, parser *audit.Parser, log *zap.Logger) (topic.Options, error) {
	client, err := kafka.ClientOptions(kafka.Options{Config: c.Audit.Kafka.Connection(), Identity: event.Identity{Bridge: c.Name, Sink: "audit"}, Logger: log})
	return topic.Options{Client: client, Topic: c.Audit.Kafka.Topic, Parser: parser}, err
}
