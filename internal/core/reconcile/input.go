package reconcile

import "github.com/kubebridge/kubebridge/pkg/event"

// InputKind is the kind of an [Input].
type InputKind uint8

// The kinds of inputs. Those of a read or of a list beside it are dropped if the number in
// [Input].Read or [Input].Side is not the present one.
const (
	Configure   InputKind = iota // the collection is wanted, with Properties
	Remove                       // it is not wanted
	Release                      // every wanted collection of the resource has synced
	ListBegun                    // the API server has answered the first page: Reason, NewEpoch, Absent
	Sighted                      // a watch event, or an object of a list: Sighting, Resume
	ListEnded                    // the list is complete at Version: Owner
	ListLacks                    // the inventory has a key that the list has not: Sighting
	ListDone                     // there are no more such keys
	Bookmark                     // Resume
	Demand                       // a resync is due
	Reconnected                  // a watch begins at the position, and the API server may have been restored since: see Collection.samples
	SideBegun                    // a list beside the watch begins: of samples or of a resync if they are due, of a verification otherwise
	SideEnded                    // it is complete at Version
	SideBroken
	Forget  // the inventory entry of Key, of an ending
	Forgot  // there are no more entries
	Confirm // a periodic synced event is due
	inputs
)

func (k InputKind) String() string {
	return [...]string{
		"configure", "remove", "release", "list begun", "sighted", "list ended", "list lacks", "list done", "bookmark",
		"resync demanded", "reconnected", "side list begun", "side list ended", "side list broken", "forget", "forgot", "confirm",
	}[k]
}

// Input is one input of one collection.
type Input struct {
	Kind       InputKind
	Collection string
	Read       uint64 // of ListBegun, Sighted, ListEnded, Bookmark, Reconnected: from [Core.Reading]; of ListLacks and ListDone, 0 is any
	Side       uint64 // of Sighted, SideEnded, SideBroken of a list beside the watch: likewise
	Now        uint64 // milliseconds since 1970, for the numbers of runs
	Properties Properties
	Reason     event.Reason // of ListBegun: of the gap, unless the phase is New, or Listing, whose gap goes on
	NewEpoch   bool
	Absent     bool
	Version    string // of ListEnded, SideEnded; of Sighted, if it is a sample: of the state of the API server that was read
	Owner      string // see [Record]
	Resume     string // a watch may start from it once the input is handled; "": as before
	Key        string
	Sighting   *Sighting
}

// late reports whether an input is of a read, or of a list beside one, that is over.
func (in *Input) late(c *Collection) bool {
	if in.Side != 0 {
		return c.side == nil || in.Side != c.side.number
	}
	switch in.Kind {
	case ListBegun, Sighted, ListEnded, Bookmark, Reconnected:
		return in.Read != c.read
	case ListLacks, ListDone:
		return in.Read != 0 && in.Read != c.read
	}
	return false
}
