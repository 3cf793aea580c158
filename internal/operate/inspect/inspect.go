// Package inspect describes what a checkpoint holds.
package inspect

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Checkpoint is what a checkpoint holds.
type Checkpoint struct {
	Path     string         `json:"path"`
	Identity event.Identity `json:"identity"`
	Format   int            `json:"format"`
	// Plan is the number of the sink's plan, and Birth is when the checkpoint began or was reset, in milliseconds since 1970. 0:
	// the checkpoint has no plan yet.
	Plan  uint64 `json:"plan"`
	Birth uint64 `json:"birth"`
	// Epochs has the epoch of each storage. The storage "" is that of the API server.
	Epochs      map[string]uint64 `json:"epochs"`
	Collections []Collection      `json:"collections"`
	Owed        []string          `json:"owed"`            // resources whose plan is not published yet
	Mark        string            `json:"mark,omitempty"`  // where the last batch ends on the bus, hexadecimal
	Reset       bool              `json:"reset,omitempty"` // the next start is a reset
	// Running is since when a bridge uses a checkpoint on the bus; a bridge that was killed has left it. "": no bridge does.
	Running string `json:"running,omitempty"`
	// Move is what the store has of a move; nil: nothing.
	Move *checkpoint.Move `json:"move,omitempty"`
}

// Collection is what a checkpoint holds of a collection.
type Collection struct {
	ID          string           `json:"id"`
	Phase       string           `json:"phase"`
	Run         uint64           `json:"run"`
	Incarnation uint64           `json:"incarnation"`
	Epoch       uint64           `json:"epoch"`
	Storage     string           `json:"storage,omitempty"`
	Position    string           `json:"position"` // the resourceVersion up to which the inventory is complete
	Seen        string           `json:"seen"`     // the highest resourceVersion
	Objects     durable.Holdings `json:"objects"`
	Bodies      int              `json:"bodies"`         // that are kept for diffs
	Edit        uint64           `json:"edit"`           // the number of the plan that changed the collection last
	Owed        bool             `json:"owed,omitempty"` // that number is not published yet
	InDoubt     *Doubt           `json:"inDoubt,omitempty"`
}

// Doubt is the effect of the last batch on a collection. The bus may have the batch, but the checkpoint
// does not have it.
type Doubt struct {
	Phase     string   `json:"phase,omitempty"` // "": only events of objects are in Doubt
	Run       uint64   `json:"run"`
	Events    []string `json:"events"`    // about the collection
	Objects   int      `json:"objects"`   // objects with events in Doubt
	Deletions int      `json:"deletions"` // of these
}

// Describe reads a checkpoint. Errors wrap [checkpoint.ErrCorrupt] if its content does not parse.
func Describe(path string, id event.Identity, store checkpoint.Store) (Checkpoint, error) {
	info := Checkpoint{Path: path, Identity: id, Format: checkpoint.Version, Epochs: map[string]uint64{}, Collections: []Collection{}, Owed: []string{}}
	numbers, err := info.readHead(store)
	if err != nil {
		return info, err
	}
	state, err := durable.Load(store)
	if err != nil {
		return info, err
	}
	owed, err := durable.Owed(store)
	if err != nil {
		return info, err
	}
	maps.Copy(info.Epochs, state.Epochs)
	doubts := doubtsOf(&state)
	for _, c := range collectionsOf(&state) {
		r, at := state.Records[c], state.Progress[c]
		info.Epochs[r.Properties.Storage] = max(info.Epochs[r.Properties.Storage], r.Epoch)
		held := Collection{
			ID: c, Phase: r.Phase.String(), Run: r.Run, Incarnation: r.Incarnation, Epoch: r.Epoch, Storage: r.Properties.Storage, Position: at.Position, Seen: at.Seen,
			Edit: numbers.Edits[c].Number, Owed: slices.Contains(owed, string(durable.OwedEditKey(c))), InDoubt: doubts[c],
		}
		if held.Objects, err = durable.Hold(store, c, r); err != nil {
			return info, err
		}
		if held.Bodies, err = countKeys(store, durable.BodyKey(c, "")); err != nil {
			return info, err
		}
		info.Collections = append(info.Collections, held)
	}
	for _, key := range owed {
		if resource, ok := strings.CutPrefix(key, string(durable.OwedPlanKey(""))); ok {
			info.Owed = append(info.Owed, resource)
		}
	}
	return info, nil
}

// readHead reads the parts of a checkpoint that do not belong to one collection.
func (i *Checkpoint) readHead(store checkpoint.Store) (plan.Numbers, error) {
	var mark, reset, running []byte
	for _, v := range []struct {
		to  *[]byte
		key []byte
	}{{&mark, checkpoint.MarkKey()}, {&reset, checkpoint.ResetKey()}, {&running, checkpoint.RunningKey()}} {
		var err error
		if *v.to, err = store.Get(v.key); err != nil {
			return plan.Numbers{}, err
		}
	}
	i.Running = string(running)
	moved, err := checkpoint.ReadMove(store)
	if err != nil {
		return plan.Numbers{}, err
	}
	if moved.ID != "" {
		i.Move = &moved
	}
	numbers, err := durable.LoadPlan(store)
	if err != nil {
		return numbers, err
	}
	i.Mark, i.Reset, i.Plan, i.Birth = hex.EncodeToString(mark), reset != nil, numbers.Number, numbers.Birth
	return numbers, nil
}

// collectionsOf returns the collections of a state, sorted. It includes collections that have only a draft.
func collectionsOf(s *reconcile.State) []string {
	ids := slices.AppendSeq(slices.Collect(maps.Keys(s.Records)), maps.Keys(s.Drafts))
	slices.Sort(ids)
	return slices.Compact(ids)
}

// doubtsOf returns what is in Doubt, by collection.
func doubtsOf(s *reconcile.State) map[string]*Doubt {
	all := map[string]*Doubt{}
	of := func(id string) *Doubt {
		if all[id] == nil {
			all[id] = &Doubt{Events: []string{}}
		}
		return all[id]
	}
	for id, d := range s.Drafts {
		for _, e := range []struct {
			name string
			has  bool
		}{{"gap", d.Gap}, {"synced", d.Synced || d.Confirmed}, {"resync", d.Resync}, {"closed", d.ClosedEmitted && !s.Records[id].ClosedEmitted}} {
			if e.has {
				of(id).Events = append(of(id).Events, e.name)
			}
		}
		of(id).Phase, of(id).Run = d.Phase.String(), d.Run
	}
	for slot, intents := range s.Intents {
		d := of(slot.Collection)
		for i := range intents {
			d.Objects++
			d.Run = max(d.Run, intents[i].Run)
			if intents[i].Deleted {
				d.Deletions++
			}
		}
	}
	return all
}

func countKeys(store checkpoint.Store, prefix []byte) (n int, err error) {
	err = store.Scan(prefix, func(_, _ []byte) error {
		n++
		return nil
	})
	return n, err
}

// Print describes a checkpoint for people.
func (i *Checkpoint) Print(w io.Writer) error {
	terminal.Show(w, "%s: bridge %s, cluster %s (%s), sink %s, format %d", i.Path, i.Identity.Bridge, i.Identity.Cluster, i.Identity.ClusterUID, i.Identity.Sink, i.Format)
	if i.Birth != 0 {
		terminal.Show(w, "  plan %d; the checkpoint began, or was reset, on %s", i.Plan, time.UnixMilli(int64(i.Birth)).UTC().Format(time.RFC3339))
	}
	for _, storage := range slices.Sorted(maps.Keys(i.Epochs)) {
		terminal.Show(w, "  epoch %d of %s", i.Epochs[storage], cmp.Or(storage, "the API server's storage"))
	}
	if len(i.Collections) == 0 {
		fmt.Fprintln(w, "  no collections")
	} else {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "  COLLECTION\tPHASE\tPOSITION\tOBJECTS\tRUN\tINCARNATION\tEPOCH\tEDIT\tIN DOUBT")
		for n := range i.Collections {
			c := &i.Collections[n]
			fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", terminal.Cell(c.ID), c.words(), terminal.Cell(cmp.Or(c.Position, none)), c.holds(),
				number(c.Run), number(c.Incarnation), number(c.Epoch), number(c.Edit), cmp.Or(c.InDoubt.words(), none))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	i.printDue(w)
	return nil
}

// printDue prints what the next start does.
func (i *Checkpoint) printDue(w io.Writer) {
	inDoubt, owed := false, []string(nil)
	for n := range i.Collections {
		c := &i.Collections[n]
		if inDoubt = inDoubt || c.InDoubt != nil; c.Owed {
			owed = append(owed, c.ID)
		}
	}
	if inDoubt {
		fmt.Fprintln(w, "  in doubt: the last run ended before it committed its last batch; the next start publishes what is missing of it")
	}
	if owed = append(owed, i.Owed...); len(owed) > 0 {
		terminal.Show(w, "  the plan number is not published yet for %s; the next synced event has it", strings.Join(owed, ", "))
	}
	if i.Running != "" {
		terminal.Show(w, "  in use since %s, unless the bridge was killed", i.Running)
	}
	if i.Move != nil {
		terminal.Show(w, "  %s", moveWords[i.Move.State]+i.Move.Other)
	}
	if i.Reset {
		fmt.Fprintln(w, "  the next start resets every collection")
	}
}

// none is printed for an absent value.
const none = "-"

func number(n uint64) string {
	if n == 0 {
		return none
	}
	return strconv.FormatUint(n, 10)
}

// phaseWords describe what each phase means for the next start.
var phaseWords = map[string]string{
	"new":     "begins with its first list",
	"listing": "begins with a list",
	"in step": "watches from the position",
	"absent":  "the resource or its namespace does not exist",
	"leaving": "not wanted; closed when its replacement has synced",
	"ending":  "its inventory is being removed",
	"closed":  "consumers have dropped it",
}

// moveWords describe a move of the checkpoint, before the name of the other store.
var moveWords = map[checkpoint.MoveState]string{
	checkpoint.Incoming: "not in force: a move has not ended; the checkpoint may still be in ",
	checkpoint.Arrived:  "moved here from ",
	checkpoint.Leaving:  "a move has not ended; the next start finds out whether the checkpoint is here, or in ",
	checkpoint.Moved:    "not in force: the checkpoint was moved to ",
}

func (c *Collection) words() string {
	if words := phaseWords[c.Phase]; words != "" {
		return c.Phase + ": " + words
	}
	return terminal.Cell(c.Phase)
}

// holds describes the inventory: the number of objects that consumers have, then the other inventory entries.
func (c *Collection) holds() string {
	words := strconv.Itoa(c.Objects.Published)
	for _, more := range []struct {
		n    int
		what string
	}{{c.Objects.Unpublished, "not published"}, {c.Objects.Skipped, "skipped"}, {c.Objects.Void, "of an earlier incarnation"}, {c.Bodies, "kept for diffs"}} {
		if more.n > 0 {
			words += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	return words
}

func (d *Doubt) words() string {
	if d == nil {
		return ""
	}
	parts := slices.Clone(d.Events)
	if d.Objects > 0 {
		parts = append(parts, terminal.Count(d.Objects, "object"))
	}
	if d.Deletions > 0 {
		parts = append(parts, terminal.Count(d.Deletions, "deletion"))
	}
	if d.Phase != "" {
		parts = append(parts, "then "+d.Phase)
	}
	return strings.Join(parts, ", ")
}
