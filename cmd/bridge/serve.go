package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/kubebridge/internal/access"
	"github.com/kubebridge/kubebridge/internal/mirror"
	"github.com/kubebridge/kubebridge/internal/mirror/api"
	"github.com/kubebridge/kubebridge/internal/mirror/busreader"
	"github.com/kubebridge/kubebridge/internal/mirror/store"
	"github.com/kubebridge/kubebridge/internal/serve"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// serveFlags are the flags of `bridge serve`.
type serveFlags struct {
	which        pastFlags
	data, listen string
	retain       time.Duration
}

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve --data DIR",
		Short: "Serve the Kubernetes API from the bus, read-only, for the present and the past",
		Long: `Keeps a copy of what the bus holds in a directory, and serves a read-only Kubernetes API
from it: discovery, get, list and watch. Paths below /at/TIME or /at/RESOURCEVERSION show the
past. Warning headers, which kubectl prints, say as of when an answer is complete. What is
not covered is an error, never a partial list. There is no authentication and no TLS, so it
listens on loopback addresses only. The sink must be Kafka with topics that are not compacted,
or NATS with a stream that keeps all messages.`,
		Example: "  bridge serve -c bridge.yaml --sink audit --data /var/lib/kubebridge/serve\n" +
			"  kubectl --server http://127.0.0.1:8443/at/2026-03-14T09:26:00Z get pods -A",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.which.define(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.data, "data", "", "directory of the copy; required")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8443", "loopback address and port")
	flags.DurationVar(&f.retain, "retain", 7*24*time.Hour, "how long states that were replaced are kept; 0: always")
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	switch {
	case f.data == "":
		return &exitError{exitConfig, fmt.Errorf("--data is required: see %s --help", cmd.CommandPath())}
	case f.retain < 0:
		return &exitError{exitConfig, fmt.Errorf("--retain %s: it must not be negative", f.retain)}
	case !isLoopback(f.listen):
		return &exitError{exitConfig, fmt.Errorf("--listen %s: use a loopback address such as 127.0.0.1:8443, because clients are not authenticated", f.listen)}
	}
	p, err := f.which.open(cmd)
	if err != nil {
		return err
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
	server, err := serve.New(serve.Options{Listen: f.listen, Streams: true, Log: log, Handler: api.New(api.Options{
		Mirror: m, Cluster: p.config.Cluster, Builtin: builtin(), Notes: p.notes(), Version: currentVersion().Version, Log: log,
	})})
	if err != nil {
		return &exitError{exitEnvironment, fmt.Errorf("--listen %s: %w", f.listen, err)}
	}
	log.Info("serving", zap.String("address", server.Addr().String()), zap.String("data", f.data))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Run(ctx) })
	group.Go(func() error {
		err := busreader.Run(ctx, busreader.Options{
			Mirror: m, Cluster: p.config.Cluster, Retain: f.retain, Log: log,
			Open: func(ctx context.Context) (sink.Reader, error) { return p.kind.read(ctx, nil, nil) },
		})
		if err != nil {
			return &exitError{exitEnvironment, err}
		}
		return nil
	})
	return group.Wait()
}

// builtin describes Kubernetes' own resources.
func builtin() func(resource string) (api.Builtin, bool) {
	catalog := access.Builtin()
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

// notes returns what the configuration leaves out of collections.
func (p *past) notes() func(collections []string) []string {
	collection, hides, unpublished := p.collection(), p.hides(), p.unpublished()
	return func(collections []string) (notes []string) {
		add := func(text string) {
			if !slices.Contains(notes, text) {
				notes = append(notes, text)
			}
		}
		for _, id := range collections {
			c := collection(id)
			if c.Resource == "" {
				add("the configuration does not have " + id + " any more")
				continue
			}
			filtered, dropped := hides(id)
			if filtered {
				add("a filter leaves objects of " + id + " out")
			}
			if dropped {
				add("rules take values out of objects of " + id)
			}
			if p.redacts(&c) {
				add("values in objects of " + id + " are redacted")
			}
			if c.LabelSelector != "" {
				add("objects of " + id + " are selected by the labels " + c.LabelSelector)
			}
			if c.FieldSelector != "" {
				add("objects of " + id + " are selected by the fields " + c.FieldSelector)
			}
			if c.Namespace != "" {
				add("objects of " + id + " are those of one namespace")
			}
			if c.MetadataOnly {
				add("objects of " + id + " have metadata only")
			}
			if types := unpublished(id); types != "" {
				add("events of " + id + " are not all published: " + types + " are left out")
			}
		}
		return notes
	}
}

// redacts reports whether a rule puts something else in the place of values in a collection's objects.
func (p *past) redacts(c *event.Collection) bool {
	e := p.entry(c)
	return e != nil && slices.ContainsFunc(p.config.Rules(e), func(r shape.Rule) bool {
		return r.Concerns(c.Group, c.Resource) && (r.Preset != "" || r.With != shape.WithRemove)
	})
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
		unordered := s.Kafka != nil && !s.Kafka.ExactlyOnce()
		for _, r := range p.config.ResourcesOf(s) {
			name := r.Resource
			if known, err := access.Builtin().FindUnversioned(discovery.Parse(name)); err == nil {
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
