package shape

import (
	"errors"
	"fmt"
	"hash"
	"slices"
	"sync"
)

// ignorePresets are names that stand for paths in a list of ignored ones.
func ignorePresets() map[string][]string {
	return map[string][]string{
		// What kubelets and controllers write to say that nothing has changed.
		"status-heartbeats": {"status.conditions[*].lastHeartbeatTime", "status.conditions[*].lastProbeTime"},
		// The renewal of a Lease by who has it.
		"leases": {"spec.renewTime"},
		// Nothing more than what is always ignored.
		"metadata-only": nil,
	}
}

// IgnorePresets are the names that [CompileIgnore] takes in place of a path.
func IgnorePresets() []string { return []string{"status-heartbeats", "leases", "metadata-only"} }

// alwaysIgnored changes with every write, or with the version that is read.
func alwaysIgnored() []string {
	return []string{"apiVersion", "kind", "metadata.resourceVersion", "metadata.generation", "metadata.managedFields"}
}

// Ignore distinguishes changes that matter from those that do not. It may be used
// concurrently.
type Ignore struct {
	walkers sync.Pool
}

// CompileIgnore checks the paths, or names of presets, of what does not matter.
// apiVersion, kind and metadata's resourceVersion, generation and managedFields
// never do. The errors of all paths are joined.
func CompileIgnore(list []string) (*Ignore, error) {
	root := &node{}
	var errs []error
	texts := alwaysIgnored()
	for _, text := range list {
		if paths, ok := ignorePresets()[text]; ok {
			texts = append(texts, paths...)
		} else {
			texts = append(texts, text)
		}
	}
	for _, text := range texts {
		p, err := parsePath(text)
		switch {
		case err != nil:
			errs = append(errs, err)
		case p.identity() && !slices.Contains(alwaysIgnored(), text):
			errs = append(errs, fmt.Errorf("%q: without this, objects cannot be distinguished: name the part of it that does not matter", text))
		default:
			root.at(p).action = removed
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	i := &Ignore{}
	i.walkers.New = func() any { return &ignorer{walker: walker{root: root, prune: true}} }
	return i, nil
}

type ignorer struct {
	walker
	rest []byte
}

// Hash writes to h the object raw without what is ignored: the same bytes for two
// states of an object that differ in nothing else. Objects and lists that hold only
// ignored values count as absent, so that the first of them is no change and the last
// of them neither. A server that writes the same object in another order has changed
// it. After an error nothing is written.
func (i *Ignore) Hash(h hash.Hash, raw []byte) error {
	w := i.walkers.Get().(*ignorer)
	defer i.walkers.Put(w)
	rest, changed, err := w.walk(w.rest[:0], raw, "")
	if err != nil {
		return fmt.Errorf("digest without what is ignored: %w", err)
	}
	w.rest = rest
	if !changed {
		rest = raw
	}
	h.Write(rest)
	return nil
}
