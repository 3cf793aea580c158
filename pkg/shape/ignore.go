package shape

import (
	"errors"
	"fmt"
	"hash"
	"slices"
	"sync"
)

// ignorePresets returns the paths that each preset of ignore rules stands for.
func ignorePresets() map[string][]string {
	return map[string][]string{
		// Kubelets and controllers write these times to say that nothing has changed.
		"status-heartbeats": {"status.conditions[*].lastHeartbeatTime", "status.conditions[*].lastProbeTime"},
		// The holder of a Lease writes it to renew the Lease.
		"leases": {"spec.renewTime"},
		// No path beside those that are always ignored.
		"metadata-only": nil,
	}
}

// IgnorePresets returns the names that [CompileIgnore] accepts in place of a path.
func IgnorePresets() []string { return []string{"status-heartbeats", "leases", "metadata-only"} }

// alwaysIgnored returns the fields that change with every write, or with the API version that is read.
func alwaysIgnored() []string {
	return []string{"apiVersion", "kind", "metadata.resourceVersion", "metadata.generation", "metadata.managedFields"}
}

// Ignore distinguishes changes that matter from those that do not. It may be used
// concurrently.
type Ignore struct {
	walkers sync.Pool
}

// CompileIgnore checks a list of paths and presets that are ignored.
// apiVersion, kind and metadata's resourceVersion, generation and managedFields
// are always ignored. The error joins the errors of all paths.
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
			root.addPath(p).action = removed
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

// Hash writes the object raw to h, without ignored values. Two states of an object that differ only in ignored
// values give the same bytes. Objects and lists that hold only
// ignored values count as absent, so that adding the first ignored value, or removing the last one, is no change.
// The order of members matters: a server that writes an object in another order has changed
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
