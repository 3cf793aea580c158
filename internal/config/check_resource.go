package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// The values of [Resource]'s Snapshot.
const (
	SnapshotPublish = "publish"
	SnapshotSkip    = "skip"
)

// The values of [Resource]'s Diff.
const (
	DiffNone   = "none"
	DiffPatch  = "patch"
	DiffBefore = "before"
	DiffBoth   = "both"
)

func eventTypes() []string { return []string{"added", "modified", "deleted"} }

func (p *problems) resources(path string, list []Resource) {
	entries := make([]plan.Entry, len(list))
	for i := range list {
		p.resource(fmt.Sprintf("%s[%d]", path, i), &list[i])
		entries[i] = list[i].planned(p.place(fmt.Sprintf("%s[%d]", path, i)))
	}
	for _, m := range plan.Mistakes(entries) {
		entry := fmt.Sprintf("%s[%d]", path, m.Entry)
		at := join(entry, m.Field)
		if p.wrong[at] || m.Field == "name" && p.wrong[entry] {
			continue
		}
		p.add(at, "%s", m.Err)
	}
}

// resource fills in the defaults of an entry and records its mistakes.
func (p *problems) resource(at string, r *Resource) {
	wrong := r.Parsed().Check()
	switch {
	case r.Resource == "":
		p.add(at, "it names no resource: write pods, deployments.apps, or resource: with its options")
	case r.Resource == "*" && r.Group != "" && r.Version == "":
		p.add(at, "it has a group of its own: write *.%s as the resource", r.Group)
	case wrong != nil:
		p.add(at, "%s", wrong)
	}
	p.namespaces(at+".namespaces", r.Namespaces)
	p.namespaces(at+".excludeNamespaces", r.ExcludeNamespaces)
	if len(r.Namespaces) > 0 && len(r.ExcludeNamespaces) > 0 {
		p.add(at+".excludeNamespaces", "it is set beside namespaces, which lists all there are: remove %s from namespaces instead", strings.Join(r.ExcludeNamespaces, ", "))
	}
	r.Snapshot = cmp.Or(r.Snapshot, SnapshotPublish)
	p.oneOf(at+".snapshot", r.Snapshot, SnapshotPublish, SnapshotSkip)
	if r.Diff != "" {
		p.oneOf(at+".diff", r.Diff, DiffNone, DiffPatch, DiffBefore, DiffBoth)
	}
	p.types(at+".types", r)
	p.interval(at+".syncedEvery", r.SyncedEvery, time.Second)
	p.interval(at+".resync", r.Resync, time.Minute)
	p.interval(at+".verifyEvery", r.VerifyEvery, time.Minute)
	p.paths(at, r)
}

func (p *problems) namespaces(at string, list []string) {
	for i, n := range list {
		if strings.Contains(n, "*") {
			p.add(fmt.Sprintf("%s[%d]", at, i), "%q: namespaces have no patterns: select them by label, as in namespaceSelector: kubernetes.io/metadata.name notin (kube-system, kube-public), or by labels that you set", n)
		} else if !nameForm.MatchString(n) {
			p.add(fmt.Sprintf("%s[%d]", at, i), "%q cannot be a namespace: %s", n, nameRule)
		} else if slices.Contains(list[:i], n) {
			p.add(fmt.Sprintf("%s[%d]", at, i), "namespace %q is named twice", n)
		}
	}
}

func (p *problems) types(at string, r *Resource) {
	if r.Types != nil && len(r.Types) == 0 {
		p.add(at, "it is empty, so nothing would be published: leave it out for all types, or name some of %s", strings.Join(eventTypes(), ", "))
	}
	for i, t := range r.Types {
		p.oneOf(fmt.Sprintf("%s[%d]", at, i), t, eventTypes()...)
		if slices.Contains(r.Types[:i], t) {
			p.add(fmt.Sprintf("%s[%d]", at, i), "%q is named twice", t)
		}
	}
}

func (p *problems) interval(at string, d, least time.Duration) {
	if d != 0 && d < least {
		p.add(at, "%s is too short: use at least %s, or leave it out for never", d, least)
	}
}

// exclude checks that no excluded resource is also configured by name.
func (p *problems) exclude(c *Config) {
	for i, text := range c.Exclude {
		at, name := fmt.Sprintf("exclude[%d]", i), discovery.Parse(text).WithoutVersion()
		switch wrong := name.Check(); {
		case text == "":
			p.add(at, "it names no resource: write leases.coordination.k8s.io, or a pattern such as *.metrics.k8s.io")
		case wrong != nil:
			p.add(at, "%s", wrong)
		case name.IsEverything():
			p.add(at, "%q would leave nothing: name what is to be left out", name)
		case name.Version() != "":
			p.add(at, "%q: a resource is left out in all its versions: write %s", name, name.Unversioned())
		case slices.Contains(c.Exclude[:i], text):
			p.add(at, "%q is named twice", name)
		default:
			p.asked(at, name, "resources", c.Resources)
			for j := range c.Sinks {
				p.asked(at, name, fmt.Sprintf("sinks[%d].resources", j), c.Sinks[j].Resources)
			}
		}
	}
}

func (p *problems) asked(at string, excluded discovery.Name, path string, list []Resource) {
	for i, r := range list {
		if named := r.Parsed(); excluded.Covers(named) {
			p.add(at, "%q would leave out %q, which %s[%d] asks for: remove one of them", excluded, named, path, i)
		}
	}
}
