package campaign

import (
	"maps"
	"math"
	"slices"
)

// complete checks that every transition outside of gaps is published, in each of the cluster's histories.
func (v *verdict) complete() {
	for era, objects := range v.ledger.eras() {
		for _, o := range objects {
			v.life(era, o)
		}
	}
	if v.ledger.former == nil {
		return
	}
	for resource := range v.cluster {
		if m := v.undone[resource]; m != nil && v.silent[resource] {
			v.wrong("declared", "%s: no gap declares the restore of etcd, although an event was published that the restore undid: %s", resource, m)
		}
		if len(v.windows[1][resource]) == 0 && !v.silent[resource] {
			v.wrong("declared", "%s: no gap declares the restore of etcd", resource)
		}
	}
}

// life checks one object in one history.
func (v *verdict) life(era int, o *object) {
	resource, in := o.typ.ResourceID(), false
	for i, version := range o.versions {
		was := in
		in = version.in
		if !was && !in || era > 0 && version.old {
			continue
		}
		if v.published[era][o.uid][version.rv] {
			continue
		}
		if was && in && o.typ.ignore && o.typ.published(version.body) == o.typ.published(o.versions[i-1].body) {
			continue
		}
		windows := v.covering(era, resource, version.rv-1, version.rv+1)
		switch killed := v.buffered.has(o.uid, version.rv); {
		case v.replayable(resource, windows, killed):
			v.wrong("complete", "version %d of %s is not published, but it was in the disk buffer of a bridge that was killed at %s", version.rv, o, killed)
		case len(windows) > 0:
			v.excused++
		default:
			v.wrong("complete", "version %d of %s is not published, and no gap covers it: %v", version.rv, o, v.windows[era][resource])
		}
	}
	if in && o.deleted && !v.ended[era][o.uid] && !(era > 0 && o.gone) {
		windows := v.covering(era, resource, o.after, o.before)
		switch killed := v.buffered.hasDeletion(o.uid, o.after, o.before); {
		case v.replayable(resource, windows, killed):
			v.wrong("complete", "the deletion of %s is not published, but it was in the disk buffer of a bridge that was killed at %s", o, killed)
		case len(windows) > 0:
			v.excused++
		default:
			v.wrong("complete", "the deletion of %s is not published, and no gap covers it: %v", o, v.windows[era][resource])
		}
	}
}

// covering returns the windows that have a version between after and before, both exclusive.
func (v *verdict) covering(era int, resource string, after, before uint64) (all []window) {
	if before < math.MaxUint64 {
		before--
	}
	for _, w := range v.windows[era][resource] {
		if w.from < before && w.to > after {
			all = append(all, w)
		}
	}
	return all
}

// replayable reports whether what a killed bridge had recorded had to be published after its restart.
func (v *verdict) replayable(resource string, windows []window, killed kill) bool {
	return killed != kill{} && !v.taken[resource] && !slices.ContainsFunc(windows, func(w window) bool { return w.openAt(killed.at) })
}

// inStep checks pkg/consumer: after all messages, its copies are complete and have the same objects as copies by the contract's rules.
func (v *verdict) inStep() {
	u := newUnionReader(v.pair, "")
	for i := range v.messages {
		if err := u.apply(&v.messages[i]); err != nil {
			v.wrong("state", "pkg/consumer returns an error for %s: %v", &v.messages[i], err)
			return
		}
	}
	for resource := range v.cluster {
		if _, ok := u.state.Complete(v.name, resource); !ok {
			v.wrong("state", "%s: pkg/consumer reports an incomplete copy at the end: %+v", resource, u.state.Collections())
		}
		u.resource = resource
		if shown, want := u.shown(), versions(u.copy.Union(resource)); !maps.Equal(shown, want) {
			v.wrong("state", "%s: pkg/consumer has the objects %v, want %v by the rules of docs/events.md", resource, shown, want)
		}
	}
}

// state checks that the copy of a consumer equals the cluster.
func (v *verdict) state() {
	for resource, objects := range v.cluster {
		for uid, body := range objects {
			got, ok := v.mirror[resource][uid]
			o := v.ledger.objects[uid]
			if o == nil {
				v.wrong("state", "%s %s exists in the cluster, but the campaign did not create it: %.500s", resource, uid, canonical(body))
			} else if want := o.typ.published(body); !ok {
				v.wrong("state", "%s exists in the cluster, but the copy built from the bus does not have it", o)
			} else if got != want {
				v.wrong("state", "the copy of %s\n  is   %.1500s\n  want %.1500s", o, got, want)
			}
		}
		for uid, body := range v.mirror[resource] {
			if objects[uid] == nil {
				v.wrong("state", "%s %s does not exist in the cluster, but the copy built from the bus has it: %.500s", resource, uid, body)
			}
		}
	}
}
