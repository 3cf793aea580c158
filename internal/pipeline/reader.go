package pipeline

import (
	"bytes"
	"context"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

const (
	// maxAsked bounds how many objects that a list lacked are asked for one by one,
	// whether they only left the selection.
	maxAsked = 500
	// maxRecalled bounds for how many objects that a list lacked the server's past is
	// searched: they are held in memory, some 1 KiB each.
	maxRecalled = 10_000
)

// apiReader reads collections of an API server.
type apiReader struct {
	lane   *Lane
	client *source.Client
	lists  *semaphore.Weighted
}

func (r *apiReader) read(ctx context.Context, j job) error {
	h := &laneHandler{lane: r.lane, member: j.member}
	c := source.NewCollection(source.Options{
		Client: r.client, Target: j.target, Handler: h, Lists: r.lists, Owner: j.owner,
		OnState: func(s source.State) { r.lane.stateChanged(j.member.id, j.member.resource, s) },
	})
	h.last = c
	return c.Run(ctx, j.from)
}

func (r *apiReader) survey(ctx context.Context, t source.Target, h source.Handler) (string, error) {
	return source.NewCollection(source.Options{Client: r.client, Target: t, Handler: h, Lists: r.lists}).Survey(ctx, h)
}

// lastKnown tells what became of objects that a list lacks.
type lastKnown interface {
	Alive(ctx context.Context, namespace, name, uid string) (alive, known bool)
	Recall(ctx context.Context, rv string, objects []source.Name, found func(*source.Object) error) error
}

// laneHandler hands a collection's signals to its lane.
type laneHandler struct {
	lane   *Lane
	member *member
	last   lastKnown // nil: nothing more can be known
	from   string    // of the list under way: the last resourceVersion known to be complete
}

// Handle implements source.Handler.
func (h *laneHandler) Handle(ctx context.Context, s source.Signal) error {
	switch s.Kind {
	case source.ListBegun:
		if h.from = s.RV; s.NewEpoch {
			h.from = "" // the server knows nothing of that history
		}
	case source.ListEnded:
		if err := h.recall(ctx, s.RV); err != nil {
			return err
		}
	}
	return h.lane.pass(ctx, parcel{member: h.member, signal: s})
}

// vanished is an object that a list lacks.
type vanished struct {
	key             []byte
	namespace, name string
	uid             string
	reborn          bool // its name belongs to another
}

func vanish(o object) vanished {
	_, namespace, name, _ := checkpoint.ParseEntryKey(o.key) // made by EntryKey: cannot fail
	return vanished{key: bytes.Clone(o.key), namespace: namespace, name: name, uid: o.entry.UID}
}

// recalled is what became of a vanished object.
type recalled struct {
	key    []byte
	uid    string
	rv     string // of the list that lacked it
	object *source.Object
	left   bool
}

// recall finds out what became of the objects that the list lacks, which had its
// end at rv. It runs in the collection's goroutine: the lane goes on meanwhile.
func (h *laneHandler) recall(ctx context.Context, rv string) error {
	if h.last == nil {
		return nil
	}
	ask := make(chan []vanished, 1)
	if err := h.lane.pass(ctx, parcel{member: h.member, ask: ask}); err != nil {
		return err
	}
	var list []vanished
	select {
	case list = <-ask:
	case <-ctx.Done():
		return ctx.Err()
	}
	if len(list) == 0 {
		return nil
	}
	open := make(map[source.Name]vanished, len(list))
	left := map[string]bool{}
	asked := 0
	names := make([]source.Name, 0, len(list))
	for _, v := range list {
		name := source.Name{Namespace: v.namespace, Name: v.name}
		open[name] = v
		names = append(names, name)
		if v.reborn || !mayLeave(&h.member.target.Collection) || asked == maxAsked {
			continue
		}
		asked++
		alive, known := h.last.Alive(ctx, v.namespace, v.name, v.uid)
		left[v.uid] = alive && known
	}
	tell := func(v vanished, o *source.Object) error {
		return h.lane.pass(ctx, parcel{
			member: h.member, signal: source.Signal{Object: o}, recall: &recalled{v.key, v.uid, rv, o, left[v.uid]},
		})
	}
	if h.from != "" {
		err := h.last.Recall(ctx, h.from, names, func(o *source.Object) error {
			name := source.Name{Namespace: o.Namespace, Name: o.Name}
			v, ok := open[name]
			if !ok || v.uid != o.UID {
				return nil
			}
			delete(open, name)
			return tell(v, o)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // they are told without a body
			h.lane.log.Info("last bodies cannot be read", h.member.field(), zap.Error(err))
		}
	}
	for _, v := range list {
		if _, unsaid := open[source.Name{Namespace: v.namespace, Name: v.name}]; unsaid && left[v.uid] {
			if err := tell(v, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayLeave reports whether an object can leave the collection alive.
func mayLeave(c *event.Collection) bool { return c.LabelSelector != "" || c.FieldSelector != "" }
