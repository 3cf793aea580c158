package campaign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/attribution"
	"github.com/kubebridge/kubebridge/test/e2e/internal/auditlog"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

const (
	// auditSettle, auditKeep and auditWait are audit.settle, audit.keep and audit.wait.
	auditSettle = 5 * time.Second
	auditKeep   = 40 * time.Second
	auditWait   = time.Second
	// auditRequestTimeout is that of the API server in seeds that may have complete records: the bridge trusts them after twice this time.
	auditRequestTimeout = 4 * time.Second
	auditToken          = "the-token-of-the-bridge-in-the-campaign"

	auditPathEnv   = "KUBEBRIDGE_CAMPAIGN_AUDIT"  // the environment variable with a process's audit directory
	auditListenEnv = "KUBEBRIDGE_CAMPAIGN_LISTEN" // the environment variable with the address of a process's webhook
	auditStream    = 9                            // number of the random stream for the audit input
)

// The inputs of an [auditForm].
const (
	inputLog     = "log"     // the log of the API server itself, which all seeds share
	inputFile    = "file"    // a file to which a relay copies the records of the seed
	inputWebhook = "webhook" // to which a relay sends the records of the seed
)

// auditForm says how the bridge gets audit records, and what it does with them.
type auditForm struct {
	input     string // "": the bridge has no audit input
	wait      bool
	complete  bool // with inputLog only: a relay does not hold up the API server until the bridge has the record
	denied    bool
	disturbed bool // there are faults of records
}

// auditFormOf lets the seed choose a form. One of three seeds has no audit input, unless always is true.
func auditFormOf(seed uint64, always bool) auditForm {
	r := newChance(seed, auditStream)
	f := auditForm{input: []string{"", "", inputLog, inputLog, inputFile, inputWebhook}[r.IntN(6)]}
	if always && f.input == "" {
		f.input = []string{inputLog, inputFile, inputWebhook}[r.IntN(3)]
	}
	if f.input == "" {
		return auditForm{}
	}
	f.wait, f.denied, f.disturbed = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
	f.complete = f.input == inputLog && r.IntN(3) > 0
	return f
}

func (f auditForm) String() string {
	s := f.input
	for _, one := range []struct {
		is   bool
		name string
	}{{f.wait, "wait"}, {f.complete, "complete"}, {f.denied, "denied"}, {f.disturbed, "disturbed"}} {
		if one.is {
			s += ", " + one.name
		}
	}
	return s
}

// auditPolicy records what seeds write, with bodies except those of Secrets, and reads without bodies. The types have no list, because every seed has
// custom types of its own.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ["*"]
- level: None
  resources:
  - {group: "", resources: ["namespaces", "events", "serviceaccounts", "serviceaccounts/token"]}
  - {group: coordination.k8s.io}
  - {group: apiextensions.k8s.io}
  - {group: apiregistration.k8s.io}
  - {group: rbac.authorization.k8s.io}
  - {group: authorization.k8s.io}
  - {group: authentication.k8s.io}
- level: Metadata
  verbs: ["get", "list", "watch"]
  omitStages: ["RequestReceived", "ResponseStarted"]
- level: Metadata
  resources: [{group: "", resources: ["secrets"]}]
- level: RequestResponse
`

// AuditedCluster returns the options of a cluster for seeds with an audit input, and the path of its audit log. Both files are in dir. If harm
// is true, the cluster is for seeds with faults of the API server itself.
func AuditedCluster(dir string, harm bool) (o clustertest.Options, log string, err error) {
	policy, log := filepath.Join(dir, "audit-policy.yaml"), filepath.Join(dir, "audit.log")
	o.ExtraArgs = []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-mode=blocking-strict", "--audit-log-maxsize=20", "--audit-log-maxbackup=5",
	}
	if !harm { // a request that is stopped with the API server must not end with a timeout: it could go on
		o.ExtraArgs = append(o.ExtraArgs, "--request-timeout="+auditRequestTimeout.String())
	}
	return o, log, os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

// audited is the part of a world that has an audit input.
type audited struct {
	auditForm
	relay  *auditlog.Relay // nil with inputLog
	file   *auditlog.File  // nil unless the input is inputFile
	listen [2]string       // addresses of the webhooks of two bridges
}

// slot returns the number of the audit directory of the next process of a replica. Two bridges cannot use one at the same time.
func (w *world) slot(replica int) int {
	if w.replicas > 1 {
		return replica
	}
	if w.other {
		return 1
	}
	return 0
}

func (w *world) auditDir(slot int) string { return filepath.Join(w.dir, fmt.Sprint("audit-", slot)) }

// auditEnv returns the environment variables of a process of a bridge.
func (w *world) auditEnv(replica int) []string {
	if w.audit == nil {
		return nil
	}
	slot := w.slot(replica)
	return []string{auditPathEnv + "=" + w.auditDir(slot), auditListenEnv + "=" + w.audit.listen[slot]}
}

// record starts what brings audit records to the bridge, and returns the bridge's configuration; nil: it has no audit input.
func (w *world) record() (map[string]any, error) {
	if w.spec.soak || w.spec.Kills > 0 || w.spec.AuditLog == "" {
		return nil, nil
	}
	form := auditFormOf(w.spec.Seed, w.spec.Audit)
	if form.input == "" {
		return nil, nil
	}
	form.complete = form.complete && !w.spec.Harm
	w.audit = &audited{auditForm: form}
	c := map[string]any{"path": "${env:" + auditPathEnv + "}", "settle": auditSettle.String(), "keep": auditKeep.String(), "denied": form.denied, "complete": form.complete}
	if form.complete {
		c["requestTimeout"] = auditRequestTimeout.String()
	}
	if form.wait {
		c["wait"] = auditWait.String()
	}
	var to auditlog.Destination
	switch form.input {
	case inputLog:
		c["file"] = w.spec.AuditLog
		return c, nil
	case inputFile:
		w.audit.file = &auditlog.File{Path: filepath.Join(w.dir, "records.log")}
		to, c["file"] = w.audit.file, w.audit.file.Path
	default:
		webhook, err := w.webhook()
		if err != nil {
			return nil, err
		}
		to, c["webhook"] = auditlog.NewWebhook(auditToken, w.audit.listen[:]...), webhook
	}
	own := []byte(w.ns)
	relay, err := auditlog.NewRelay(w.spec.AuditLog, w.spec.Seed, func(line []byte) bool { return bytes.Contains(line, own) }, to)
	if err != nil {
		return nil, err
	}
	w.audit.relay = relay
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := relay.Run(ctx); err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.surprises = append(w.surprises, fmt.Sprintf("[campaign] the relay of audit records: %v", err))
		}
	})
	w.later(func() { stop(); running.Wait() })
	return c, nil
}

// webhook returns the configuration of the webhook of a process.
func (w *world) webhook() (map[string]any, error) {
	for i := range w.audit.listen {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		w.audit.listen[i] = free.Addr().String()
		if err := free.Close(); err != nil {
			return nil, err
		}
	}
	certificate, key, err := auditlog.NewCertificate()
	if err != nil {
		return nil, err
	}
	c := map[string]any{"listen": "${env:" + auditListenEnv + "}"}
	for name, text := range map[string][]byte{"certFile": certificate, "keyFile": key, "tokenFile": []byte(auditToken)} {
		path := filepath.Join(w.dir, "audit-"+name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, err
		}
		c[name] = path
	}
	return c, nil
}

// trusted waits until the bridge knows that complete records are complete, which a patch with an exact answer shows. It waits for a limited time, because
// nothing depends on that but how many answers of the seed are exact.
func (w *world) trusted(ctx context.Context, l *ledger) error {
	if w.audit == nil || !w.audit.complete || w.pair.lossy() {
		return nil
	}
	t, name := w.types[0], "trust" // ConfigMaps
	fields := body(t, name)
	fields["metadata"] = map[string]any{"labels": map[string]any{watchedLabel: "yes"}}
	o, err := w.kube.Create(ctx, t.Type, name, fields)
	if err != nil {
		return err
	}
	l.wrote(t, o, admin)
	for step := range 20 {
		by, client := w.who.next()
		if o, err = client.Patch(ctx, t.Type, name, fmt.Sprintf(`{"data":{"trust":"%d"}}`, step)); err != nil {
			return err
		}
		l.wrote(t, o, by)
		if !rest(ctx, time.Second) {
			return context.Cause(ctx)
		}
		all, err := w.bus.read(ctx)
		if err != nil {
			return err
		}
		answers, _ := attribution.Read(all, attribution.Options{})
		for _, list := range answers {
			for _, a := range list {
				if a.Request != nil && a.Request.Verb == "patch" && a.UID() == string(o.GetUID()) {
					return nil
				}
			}
		}
	}
	return nil
}

// settleAudit waits until no change waits for its record.
func (w *world) settleAudit(ctx context.Context) error {
	if w.audit == nil {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, auditKeep+auditSettle+30*time.Second)
	defer cancel()
	last := -1.0 // not known
	for {
		waiting, known := 0.0, true
		for _, p := range w.current {
			_, body, err := p.Get(limit, "/metrics")
			n, _ := bridge.Sum(body, "kubebridge_attributions_waiting")
			waiting, known = waiting+n, known && err == nil
		}
		if known && waiting == 0 {
			return nil
		}
		if known {
			last = waiting
		}
		if !rest(limit, 200*time.Millisecond) {
			return fmt.Errorf("%.0f changes still wait for their audit records", last)
		}
	}
}

// Names of faults of records.
const (
	recordsDropped  = "audit records dropped"
	recordsRepeated = "audit records repeated"
	recordsDelayed  = "audit records delayed"
	recordsShuffled = "audit records reordered"
	logRotated      = "audit log rotated"
	auditPathLost   = "audit.path lost while the bridge is down"
)

// auditFaults returns the faults of audit records. The input inputLog has no relay, so nothing can happen to its records.
func (n *nemesis) auditFaults() []fault {
	if n.audit == nil || !n.audit.disturbed {
		return nil
	}
	faults := []fault{{name: auditPathLost, once: true, do: n.loseAuditPath}}
	if n.audit.relay == nil {
		return faults
	}
	for name, d := range map[string]auditlog.Disturbance{recordsDropped: auditlog.Drop, recordsRepeated: auditlog.Repeat, recordsDelayed: auditlog.Delay, recordsShuffled: auditlog.Shuffle} {
		faults = append(faults, fault{name: name, do: func(ctx context.Context, r *chance) error {
			n.audit.relay.Disturb(d)
			r.wait(ctx, 3*time.Second)
			n.audit.relay.Disturb(auditlog.None)
			return nil
		}})
	}
	if n.audit.file != nil {
		faults = append(faults, fault{name: logRotated, do: func(context.Context, *chance) error { return n.audit.file.Rotate() }})
	}
	slices.SortFunc(faults, func(a, b fault) int { return strings.Compare(a.name, b.name) })
	return faults
}

// loseAuditPath removes the directory of audit records of a bridge that was killed.
func (n *nemesis) loseAuditPath(context.Context, *chance) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.revive(); err != nil {
		return err
	}
	for i, p := range n.current {
		p.Kill()
		if err := errors.Join(os.RemoveAll(n.auditDir(n.slot(i))), n.relaunch(i)); err != nil {
			return err
		}
	}
	return nil
}

// happenedAny reports whether a fault whose name begins with one of the texts has happened.
func (n *nemesis) happenedAny(names ...string) bool {
	return slices.ContainsFunc(n.happened, func(h happening) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(h.name, name) })
	})
}

// auditVerdicts returns a verdict for each sink, which is not judged yet. second has the messages of the second sink.
func (n *nemesis) auditVerdicts(l *ledger, first, second []bus.Message) []*auditVerdict {
	if n.audit == nil {
		return nil
	}
	moved := n.replicas > 1 || n.second // another bridge has an audit directory of its own, without the records that the former one has
	lost := n.happenedAny("stream deleted", "topic deleted")
	whole := !n.spec.Harm && !moved && !n.pair.lossy() && !n.happenedAny(recordsDropped, recordsDelayed, recordsShuffled, auditPathLost)
	by := func(m *bus.Message) makers {
		if n.shares(m) {
			return n.gadgets.truth.makers(m)
		}
		return l.makers(m)
	}
	known := map[string]bool{admin: true}
	for _, name := range n.who.names {
		known[name] = true
	}
	base := auditVerdict{
		form: n.audit.auditForm, makers: by, users: known, bridge: n.ns, refused: n.who.refused, whole: whole,
		repeated: moved || n.inDoubt() || n.happenedAny(recordsRepeated, recordsShuffled, auditPathLost), taken: n.taken, secrets: kube.Secrets.ResourceID(),
	}
	one, other := base, base
	one.sink, one.exact, one.lost, one.messages = "first sink", n.pair.exact(), n.pair.lossy() || lost, first
	one.whole = one.whole && !lost
	if second == nil {
		return []*auditVerdict{&one}
	}
	other.sink, other.exact, other.messages, other.refused = "second sink", true, second, nil
	return []*auditVerdict{&one, &other}
}

// auditProblems judges what all sinks have published from audit records. first has the messages of the first sink.
func (n *nemesis) auditProblems(ctx context.Context, l *ledger, first []bus.Message, result *Result) (problems []string, err error) {
	if n.audit == nil {
		return nil, nil
	}
	var second []bus.Message
	if n.beside != nil {
		ctx, done := context.WithTimeout(ctx, time.Minute)
		defer done()
		if second, err = bus.ReadStream(ctx, n.beside.conn, 0); err != nil {
			return nil, err
		}
	}
	verdicts := n.auditVerdicts(l, first, second)
	for _, v := range verdicts {
		problems = append(problems, v.judge()...)
	}
	result.Audit, result.Answers = n.audit.String(), &verdicts[0].answered
	return problems, nil
}
