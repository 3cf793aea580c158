package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// perKill is the longest time that kills waits between two kills.
const perKill = 1500 * time.Millisecond

// twoEntries returns the first edition with [Spec.Kills]: two entries of one resource, which select different values of a label.
func twoEntries(namespaces []string) edition {
	e := edition{labelled: map[string]bool{}, entries: []entry{
		{name: "x", selectBy: byLabel, values: gadgetValues[:2:2]}, {name: "y", selectBy: byLabel, values: gadgetValues[2:3:3]},
	}}
	for _, namespace := range namespaces {
		e.labelled[namespace] = true
	}
	return e
}

// twoEdited returns the edition after an edit that keeps two entries, which publish all types of events.
func (e edition) twoEdited(r *chance, before edition, namespaces []string) edition {
	for {
		next := e.edited(r, before, namespaces)
		if len(next.entries) == 2 && next.entries[0].types == nil && next.entries[1].types == nil {
			return next
		}
	}
}

// kills edits the entries, moves objects between them and kills the bridge, repeatedly: before it has read an edit, during
// the list that follows, or after it.
func (n *nemesis) kills(ctx context.Context) error {
	n.begun = time.Now()
	r, g := newChance(n.spec.Seed, 8), n.gadgets
	n.happened = append(n.happened, happening{"entries edited", time.Now()})
	for i := range n.spec.Kills {
		n.mu.Lock()
		before := g.editions[max(0, len(g.editions)-2)]
		err := n.write(g.edition().twoEdited(r, before, g.namespaces))
		n.reload()
		n.mu.Unlock()
		if err == nil && i%3 == 0 {
			err = g.locked(func() error { return g.handOver(ctx, r, g.edition()) })
		}
		if err != nil {
			return err
		}
		r.wait(ctx, perKill*2/3)
		n.mu.Lock()
		if err = n.revive(); err == nil {
			n.current[0].Kill()
			err = n.relaunch(0)
		}
		n.mu.Unlock()
		n.schedule = append(n.schedule, fmt.Sprintf("%5.2fs-%5.2fs entries edited, bridge kill -9", time.Since(n.begun).Seconds(), time.Since(n.begun).Seconds()))
		if err = errors.Join(err, context.Cause(ctx)); err != nil {
			return err
		}
		r.wait(ctx, perKill/3)
	}
	return nil
}
