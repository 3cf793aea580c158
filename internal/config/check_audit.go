package config

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/base/textfile"
	"github.com/kubebridge/kubebridge/internal/bus/kafka"
)

// leastAudit is the smallest audit.maxBytes in bytes: the largest request of an API server has room.
const leastAudit = 64 << 20

// leastWait and mostWait bound audit.wait: a shorter one is meant in another unit, and a longer one delays all events that long.
const leastWait, mostWait = 10 * time.Millisecond, time.Minute

// azureCluster is the form of the resource ID of an AKS cluster.
var azureCluster = regexp.MustCompile(`(?i)^/subscriptions/[^/]+/resourcegroups/[^/]+/providers/microsoft\.containerservice/managedclusters/[^/]+$`)

// audit checks where audit records come from.
func (p *problems) audit(c *Config) {
	a := &c.Audit
	if a.MaxBytes < leastAudit {
		p.add("audit.maxBytes", "%s is too little: use at least 64Mi", a.MaxBytes)
	}
	if a.Settle <= 0 {
		p.add("audit.settle", "%s is not a time to wait: use for example 40s", a.Settle)
	}
	if a.Wait < 0 || a.Wait > mostWait {
		p.add("audit.wait", "%s is not a time to wait: use at most %s, for example 2s, or 0 for none", a.Wait, mostWait)
	}
	if a.Wait > 0 && a.Wait < leastWait {
		p.add("audit.wait", "%s is too short, records take longer: use for example 2s, or 0 for none", a.Wait)
	}
	if a.RequestTimeout <= 0 {
		p.add("audit.requestTimeout", "%s is not a time: use that of --request-timeout, for example 1m", a.RequestTimeout)
	}
	if a.Keep < a.Settle {
		p.add("audit.keep", "%s is less than audit.settle: use for example 10m", a.Keep)
	}
	for i, what := range a.Omit {
		p.oneOf(fmt.Sprintf("audit.omit[%d]", i), what, "groups", "sourceIPs", "extra")
	}
	w := &a.Webhook
	inputs := w.Listen != "" || a.File != "" || a.Kafka != nil
	switch {
	case a.Path == "" && inputs:
		p.add("audit.path", "it is required: a directory on a volume that outlives the pod")
	case a.Path != "" && !inputs:
		p.add("audit", "it has no input: set audit.webhook.listen, audit.file or audit.kafka")
	}
	if a.Denied && a.Path == "" {
		p.add("audit.denied", "it has no effect without audit records: set audit.path and an input")
	}
	for _, other := range []string{c.Checkpoint.File.Path, c.Buffer.Path} {
		if a.Path != "" && other != "" && filepath.Clean(a.Path) == filepath.Clean(other) {
			p.add("audit.path", "%s has other files of the bridge: use another directory", a.Path)
		}
	}
	p.auditTopic(a)
	p.auditReplicas(c)
	if w.Listen == "" {
		return
	}
	if w.CertFile == "" || w.KeyFile == "" {
		p.add("audit.webhook", "certFile and keyFile are required: API servers send to an endpoint with TLS only")
	}
	if w.ClientCAFile == "" && w.TokenFile == "" {
		p.add("audit.webhook", "clientCAFile or tokenFile is required: otherwise anybody could say who made a change")
	}
}

// auditReplicas checks how replicas reach the leader.
func (p *problems) auditReplicas(c *Config) {
	a, r := &c.Audit, &c.Audit.Replicas
	if r.Address == "" {
		if r.CAFile != "" {
			p.add("audit.replicas.caFile", "it has no effect without audit.replicas.address")
		}
		return
	}
	if _, _, err := net.SplitHostPort(r.Address); err != nil || strings.Count(r.Address, "{host}") != 1 || strings.Contains(r.Address, "/") {
		p.add("audit.replicas.address", "%q is not host:port with {host}: use for example {host}.kubebridge-replicas.monitoring.svc:8444", r.Address)
	}
	if r.CAFile == "" {
		p.add("audit.replicas.caFile", "it is required: the certificates that issue those of the replicas' webhooks")
	}
	if a.Webhook.Listen == "" {
		p.add("audit.replicas", "replicas send records to the webhook of the leader: set audit.webhook.listen")
	}
	if !c.LeaderElection.Enabled {
		p.add("audit.replicas", "without leaderElection there are no replicas: set leaderElection.enabled, or leave audit.replicas out")
	}
	if a.Complete {
		p.add("audit.complete", "records that come through another replica are in no order with those of this one, so an answer by order would be a guess: leave it, or audit.replicas, out")
	}
}

func (p *problems) auditTopic(a *Audit) {
	t := a.Kafka
	if t == nil {
		return
	}
	_, err := t.Connection().Complete()
	p.fields("audit", "kafka", err)
	if !topicForm.MatchString(t.Topic) {
		p.add("audit.kafka.topic", "%q is not a topic name: letters, digits, '.', '_' and '-'", t.Topic)
	}
	if id := t.AzureResourceID; id != "" && !azureCluster.MatchString(id) {
		p.add("audit.kafka.azureResourceId", "%q is not the resource ID of an AKS cluster: use what az aks show --query id prints, /subscriptions/…/managedClusters/NAME", id)
	}
	if a.Complete {
		p.add("audit.complete", "records come late through a topic, and in no order, so an answer by order would be a guess: leave it out, or use the webhook or a file without audit.kafka")
	}
}

// batchWait is how long an API server waits by default before it sends a batch (--audit-webhook-batch-max-wait), and a second for the request.
const batchWait = 30*time.Second + time.Second

// auditWarnings records warnings about audit records that would come too late, get lost, or could be forged.
func (p *problems) auditWarnings(c *Config) {
	a, w := &c.Audit, &c.Audit.Webhook
	if a.Wait > 0 {
		p.waitWarnings(c)
	}
	if t := a.Kafka; t != nil {
		k := t.Connection()
		kafka.CheckSecurity(report{problems: p}, "audit.kafka", &k)
	}
	if w.Listen == "" {
		return
	}
	if !a.Complete && a.Settle > 0 && a.Settle < batchWait {
		p.warn("audit.settle", "%s is shorter than %s, and an API server waits up to 30s before it sends a batch, so candidates can be published before the records are there: use at least %s, or set --audit-webhook-batch-max-wait to less than %s",
			a.Settle, batchWait, batchWait, a.Settle)
	}
	if c.LeaderElection.Enabled && a.Replicas.Address == "" {
		p.warn("audit.webhook", "only the leader listens, and each replica keeps the records that it has accepted: after a failover, changes whose records another replica has are not attributed. Set audit.replicas, or run one replica with a volume")
	}
	if w.ClientCAFile != "" && len(w.ClientNames) == 0 && w.TokenFile == "" {
		p.warn("audit.webhook.clientCAFile", "every client with a certificate of this CA could say who made a change; of the cluster's CA, each kubelet has one: set clientNames, or tokenFile")
	}
	if w.TokenFile != "" && p.secretFile("audit.webhook.tokenFile", w.TokenFile, "could say who made a change") {
		if text, err := textfile.Read(w.TokenFile); err == nil && len(strings.TrimSpace(text)) < leastKeyBytes {
			p.add("audit.webhook.tokenFile", "%s: a token has at least %d bytes: use for example the output of `openssl rand -hex 32`", w.TokenFile, leastKeyBytes)
		}
	}
}

// waitWarnings records warnings about changes that would wait for nothing.
func (p *problems) waitWarnings(c *Config) {
	a := &c.Audit
	if a.Webhook.Listen != "" && !a.Complete && a.Wait < batchWait {
		p.warn("audit.wait", "%s is shorter than %s, and an API server waits up to 30s before it sends a batch: set --audit-webhook-batch-max-wait to less than %s. The bridge cannot see that flag; otherwise changes wait, and their records still come too late",
			a.Wait, batchWait, a.Wait)
	}
	if a.Path == "" {
		p.warn("audit.wait", "no change waits: set audit.path and an input")
	}
	for i := range c.Sinks {
		if c.Sinks[i].Format == "plain" {
			p.warn(fmt.Sprintf("sinks[%d].format", i), "changes of this sink do not wait (audit.wait): the format plain has no place for who made a change")
		}
	}
}
