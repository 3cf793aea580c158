package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubebridge/kubebridge/internal/base/httpserver"
	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/api"
	"github.com/kubebridge/kubebridge/internal/past/mirror/auth"
	"github.com/kubebridge/kubebridge/internal/past/mirror/busreader"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Lists that are sent at once, in total and to one address.
const listsAtOnce, listsPerAddress = 128, 64

type serveFlags struct {
	which                     pastFlags
	data, listen              string
	retain                    time.Duration
	tlsCert, tlsKey, clientCA string
	authorization             string
	rightsMaxAge              time.Duration
	maxConnections            int
	allowOrigins              []string
}

// Values of --authorization.
const (
	authorizeNone    = "none"
	authorizeCluster = "cluster"
	authorizeBus     = "bus"
)

// minRightsMaxAge is the smallest --rights-max-age. The synced events of a quiet resource are about a minute apart: see [source.Options].OnInStep.
const minRightsMaxAge = 2 * time.Minute

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve --data DIR",
		Short: "Serve the Kubernetes API from the bus, read-only, for the present and the past",
		Long: `Keeps a copy of what the bus holds in a directory, and serves a read-only Kubernetes API
from it: discovery, get, list and watch. Paths below /at/TIME or /at/RESOURCEVERSION show the
past. Warning headers, which kubectl prints, say as of when an answer is complete. What is
not covered is an error, never a partial list. Without --authorization everybody who reaches
the port sees everything, so it listens on loopback addresses only. The sink must be Kafka with
topics that are not compacted, or NATS with a stream that keeps all messages.`,
		Example: "  bridge serve -c bridge.yaml --sink audit --data /var/lib/kubebridge/serve\n" +
			"  kubectl --server http://127.0.0.1:8443/at/2026-03-14T09:26:00Z get pods -A\n" +
			"  bridge serve -c bridge.yaml --data /var/lib/kubebridge/serve --listen :8443 \\\n" +
			"    --tls-cert tls.crt --tls-key tls.key --authorization cluster",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.which.define(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.data, "data", "", "directory of the copy; required")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8443", "address and port; other addresses than loopback need TLS and --authorization")
	flags.DurationVar(&f.retain, "retain", 7*24*time.Hour, "how long states that were replaced are kept; 0: always")
	flags.IntVar(&f.maxConnections, "max-connections", httpserver.DefaultStreams, "connections at once, of which one address may have half; each open watch needs one")
	flags.StringSliceVar(&f.allowOrigins, "allow-origin", nil, "pages of these servers, such as http://127.0.0.1:4466, may watch over WebSockets as pages of this server may: for dashboards such as Headlamp; comma separated")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "file with the server's certificate, PEM; a new one is used from the next connection on")
	flags.StringVar(&f.tlsKey, "tls-key", "", "file with the key of the certificate, PEM")
	flags.StringVar(&f.clientCA, "client-ca", "", "file with the CAs of client certificates, PEM: the common name is the user, the organizations are the groups")
	flags.StringVar(&f.authorization, "authorization", authorizeNone, "who may read what: none (everybody everything), cluster (the source cluster is asked), or bus (by the RBAC objects on the bus)")
	flags.DurationVar(&f.rightsMaxAge, "rights-max-age", minRightsMaxAge, "with --authorization bus: largest age of the last event of each RBAC resource in each partition, at least 2m; 0: any")
	return cmd
}

// check returns the first wrong flag.
func (f *serveFlags) check(path string) error {
	switch {
	case f.data == "":
		return fmt.Errorf("--data is required: see %s --help", path)
	case f.retain < 0:
		return fmt.Errorf("--retain %s: it must not be negative", f.retain)
	case f.maxConnections < 2:
		return fmt.Errorf("--max-connections %d: it must be at least 2", f.maxConnections)
	case f.authorization == authorizeBus && f.rightsMaxAge > 0 && f.rightsMaxAge < minRightsMaxAge:
		return fmt.Errorf("--rights-max-age %s: use at least %s: the API server shows only about once a minute that a quiet resource has no changes", f.rightsMaxAge, minRightsMaxAge)
	case f.rightsMaxAge < 0:
		return fmt.Errorf("--rights-max-age %s: it must not be negative", f.rightsMaxAge)
	case !slices.Contains([]string{authorizeNone, authorizeCluster, authorizeBus}, f.authorization):
		return fmt.Errorf("--authorization %s: use none, cluster or bus", f.authorization)
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return errors.New("--tls-cert and --tls-key belong together: give both")
	case f.authorization != authorizeNone && f.tlsCert == "":
		return fmt.Errorf("--authorization %s: it needs --tls-cert and --tls-key, because kubectl sends credentials over TLS only", f.authorization)
	case f.authorization == authorizeNone && f.clientCA != "":
		return errors.New("--client-ca: it needs --authorization cluster or bus, which say what users may read")
	case f.authorization == authorizeNone && !isLoopback(f.listen):
		return fmt.Errorf("--listen %s: with --authorization none everybody who reaches the port sees everything: use a loopback address such as 127.0.0.1:8443, or --authorization cluster or bus with --tls-cert and --tls-key", f.listen)
	}
	for _, origin := range f.allowOrigins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || origin != u.Scheme+"://"+strings.ToLower(u.Host) {
			return fmt.Errorf("--allow-origin %q: give the scheme, the host and the port as browsers do, in lower case and without a path, for example http://127.0.0.1:4466", origin)
		}
	}
	return nil
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd.CommandPath()); err != nil {
		return &exitError{exitConfig, err}
	}
	p, err := f.which.open(cmd)
	if err != nil {
		return err
	}
	if err := f.checkRights(p); err != nil {
		return &exitError{exitConfig, err}
	}
	log := newLogger(p.config.Log.Format, logLevel(p.config.Log.Level), cmd.ErrOrStderr())
	defer func() { _ = log.Sync() }()
	for _, name := range p.slow() {
		log.Warn("resource has no syncedEvery, and several collections or partitions that are written at least once: its changes are served when all of them have changes", zap.String("resource", name))
	}
	s, err := store.Open(f.data, store.Options{})
	if err != nil {
		return &exitError{exitEnvironment, err}
	}
	err = f.serve(cmd.Context(), p, s, log)
	return errors.Join(err, s.Close())
}

// checkRights checks the entries of the RBAC resources, if rights are read from the bus.
func (f *serveFlags) checkRights(p *past) error {
	if f.authorization != authorizeBus {
		return nil
	}
	unordered := false
	for i := range p.config.Sinks {
		s := &p.config.Sinks[i]
		if s.Name != p.name {
			continue
		}
		unordered = p.kind.Unordered
		if s.Oversize == "dead-letter" {
			return fmt.Errorf("--authorization bus: the sink %s has oversize: dead-letter: a binding that became too large would keep the rights that it had before: use oversize: truncate or fail", p.name)
		}
	}
	for _, name := range auth.RBACResources() {
		c := event.ParseCollection(name)
		e := p.entry(&c)
		switch {
		case e == nil:
			return fmt.Errorf("--authorization bus: the sink %s does not publish %s in an entry without a name: add one", p.name, name)
		case unordered && e.SyncedEvery == 0:
			return fmt.Errorf("--authorization bus: the entry of %s has no syncedEvery, and the sink %s has delivery: at-least-once, so a revoked right counts until each partition has a later event: add syncedEvery, for example 30s, or use delivery: exactly-once", name, p.name)
		case f.rightsMaxAge > 0 && (e.SyncedEvery == 0 || 2*e.SyncedEvery > f.rightsMaxAge):
			return fmt.Errorf("--authorization bus: the entry of %s needs syncedEvery: %s or less, half of --rights-max-age: else it is not known whether rights are as they are now", name, f.rightsMaxAge/2)
		}
	}
	return nil
}

func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// serve reads the bus and serves until ctx ends.
func (f *serveFlags) serve(ctx context.Context, p *past, s *store.Store, log *zap.Logger) error {
	m, err := mirror.Open(s)
	if err != nil {
		return &exitError{exitEnvironment, err}
	}
	defer func() { _ = m.Close() }()
	registry, progress := newRegistry(), &copyProgress{}
	guard, from, err := f.guard(p, m, progress.check, log)
	if err != nil {
		return err
	}
	registry.MustRegister(newServeMetrics(func() []api.State { return api.States(m, p.config.Cluster) }, progress, func() int64 { return bytesOf(f.data) })...)
	o := api.Options{
		Mirror: m, Cluster: p.config.Cluster, Builtin: builtin(), Version: currentVersion().Version, Ready: progress.check,
		Metrics: api.NewMetrics(registry), Exported: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), Log: log, Origins: f.allowOrigins,
		AcquireList: httpserver.NewQuota(listsAtOnce, listsPerAddress).Acquire,
	}
	if guard != nil {
		o.Check, o.Self = guard.Check, guard
	}
	server, err := httpserver.New(httpserver.Options{
		Listen: f.listen, Cert: f.tlsCert, Key: f.tlsKey, ClientCA: f.clientCA, AnyHost: f.tlsCert != "", Streams: f.maxConnections,
		Open: []string{"/healthz", "/livez", "/readyz"}, Log: log, Handler: api.New(o),
	})
	if err != nil {
		return &exitError{exitEnvironment, fmt.Errorf("--listen %s: %w", f.listen, err)}
	}
	log.Info("serving", zap.String("address", server.Addr().String()), zap.String("data", f.data))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Run(ctx) })
	if guard != nil {
		if rights, ok := guard.Authorizer.(*auth.Bus); ok {
			group.Go(func() error { return rights.Run(ctx) })
		}
	}
	if from != nil {
		group.Go(func() error { return f.confirm(ctx, from) })
	}
	group.Go(func() error {
		err := busreader.Run(ctx, busreader.Options{
			Mirror: m, Cluster: p.config.Cluster, Retain: f.retain, Progress: progress.note, Dropped: progress.drop, Log: log,
			Open: func(ctx context.Context) (sink.Reader, error) { return p.follow(ctx, m) },
		})
		if err != nil {
			return &exitError{exitEnvironment, err}
		}
		return nil
	})
	return group.Wait()
}

// follow opens a reader for a copy. It also reads the topics of collections whose entry or route is not in the configuration any more: the bridge closes
// them there, maybe later.
func (p *past) follow(ctx context.Context, m *mirror.Mirror) (sink.Reader, error) {
	return p.read(ctx, bus.Wanted{Stays: true, Logs: m.OpenLogs()})
}

// confirm ends with an error if the API server is of another cluster than the events on the bus.
func (f *serveFlags) confirm(ctx context.Context, from *auth.Source) error {
	if err := from.Confirm(ctx); err != nil {
		return &exitError{exitConfig, fmt.Errorf("--authorization %s: set kubernetes.kubeconfig or kubernetes.context to the cluster that the bus has: %w", f.authorization, err)}
	}
	return nil
}

// apiServerUID returns what asks the API server which cluster it is of.
func apiServerUID(client *source.Client) func(ctx context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		uid, err := client.ClusterUID(ctx)
		if errors.Is(err, source.ErrOtherCluster) {
			err = fmt.Errorf("%w than kubernetes.clusterUID says: %w", auth.ErrOtherCluster, err)
		}
		return uid, err
	}
}

// guard returns what decides who may read what, and the cluster that it asks; nil: everybody everything, and none.
func (f *serveFlags) guard(p *past, m *mirror.Mirror, ready func() error, log *zap.Logger) (guard *auth.Guard, from *auth.Source, err error) {
	if f.authorization == authorizeNone {
		return nil, nil, nil
	}
	o := auth.Options{Log: log}
	reach := renewal(p.config.Kubernetes, log)
	cfg, err := reach.Config()
	switch {
	case err == nil:
		client, err := newClient(p.config.Kubernetes, log)
		if err != nil {
			return nil, nil, &exitError{exitEnvironment, err}
		}
		from = auth.NewSource(auth.SourceOptions{Cluster: p.config.Cluster, APIServerUID: apiServerUID(client), BusUID: m.ClusterUID, Log: log})
		if o.Tokens, err = auth.NewTokens(cfg, from); err != nil {
			return nil, nil, &exitError{exitEnvironment, err}
		}
	case f.authorization == authorizeBus && f.clientCA != "" && p.config.Kubernetes.Kubeconfig == "":
		log.Warn("no cluster to ask: bearer tokens are refused, client certificates are accepted", zap.Error(err))
	default:
		return nil, nil, err
	}
	if f.clientCA != "" {
		if o.Certificates, err = auth.NewCertificates(f.clientCA, log); err != nil {
			return nil, nil, &exitError{exitEnvironment, fmt.Errorf("--client-ca: %w", err)}
		}
	}
	if f.authorization == authorizeBus {
		o.Authorizer = auth.NewBus(auth.BusOptions{Mirror: m, Ready: ready, MaxAge: f.rightsMaxAge, Skipped: skipped(log)})
		return auth.NewGuard(o), from, nil
	}
	anonymous, err := reach.Anonymous().Config()
	if err != nil {
		return nil, nil, err
	}
	if o.Authorizer, err = auth.NewReviews(cfg, anonymous, from); err != nil {
		return nil, nil, &exitError{exitEnvironment, err}
	}
	return auth.NewGuard(o), from, nil
}

// skipped logs Roles and bindings that give no rights: 20 lines at once, and then one every 10 s, because many users may write them.
func skipped(log *zap.Logger) func(id store.Resource, o store.Name, why string) {
	lines := flowcontrol.NewTokenBucketRateLimiter(0.1, 20)
	return func(id store.Resource, o store.Name, why string) {
		if lines.TryAccept() {
			log.Warn("rights left out", zap.String("resource", id.Name), zap.String("namespace", o.Namespace), zap.String("name", o.Name), zap.String("reason", why))
		}
	}
}

// builtin describes Kubernetes' own resources.
func builtin() func(resource string) (api.Builtin, bool) {
	catalog := discovery.Builtin()
	return func(resource string) (b api.Builtin, ok bool) {
		name := discovery.Parse(resource)
		r, err := catalog.Find(name)
		if err != nil {
			return b, false
		}
		c := event.Collection{Group: r.Group, Resource: r.Name}
		if c.ResourceID() != resource { // the name of another group's resource
			return b, false
		}
		return api.Builtin{APIVersion: r.APIVersion(), Kind: r.Kind, Namespaced: r.Namespaced, ShortNames: catalog.ShortNames(name)}, true
	}
}

// slow returns the resources whose changes are served late, because an entry has no syncedEvery, and they have several collections, or partitions
// without an order between them.
func (p *past) slow() []string {
	several, quiet, seen := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range p.config.Sinks {
		s := &p.config.Sinks[i]
		if s.Name != p.name {
			continue
		}
		unordered := p.kind.Unordered
		for _, r := range p.config.ResourcesOf(s) {
			name := r.Resource
			if known, err := discovery.Builtin().FindUnversioned(discovery.Parse(name)); err == nil {
				c := event.Collection{Group: known.Group, Resource: known.Name}
				name = c.ResourceID()
			}
			several[name] = several[name] || unordered || seen[name] || len(r.Namespaces) > 0 || r.NamespaceSelector != ""
			quiet[name] = quiet[name] || r.SyncedEvery == 0
			seen[name] = true
		}
	}
	maps.DeleteFunc(several, func(name string, is bool) bool { return !is || !quiet[name] })
	return slices.Sorted(maps.Keys(several))
}
