package reconcile

// row is a row of the table of [Sighting], with the case of its columns that applied. Tests
// count them.
type row uint8

const (
	rowNone row = iota
	rowNotNewer
	rowLeftToWatch
	rowUnknownOld
	rowOlder
	rowRewritten
	rowNew
	rowSkippedFirst
	rowSkippedSame
	rowSkippedOther
	rowUnpublishedTried
	rowUnpublished
	rowOutdatedTried
	rowOutdated
	rowResyncDone
	rowResync
	rowSame
	rowSameFilteredOut
	rowChanged
	rowDoubtKnown
	rowDoubt
	rowFiltered
	rowFilteredOut
	rowMinor
	rowMinorResync
	rowEndedUnknown
	rowEndedSilent
	rowEnded
	rowLackingSilent
	rowLacking
	rows
)

func (r row) String() string {
	return [...]string{
		"none", "watch: not newer", "resync: left to the watch", "list: unknown and old", "list: older", "list: rewritten",
		"new", "first list skipped", "skipped, same", "skipped, other", "unpublished, tried", "unpublished",
		"outdated, tried", "outdated", "resync: published in this run", "resync: present", "same", "same, filtered out", "changed",
		"in doubt, known", "in doubt", "filtered", "filtered out",
		"minor", "minor in a resync", "ended: unknown", "ended: not published", "ended", "lacking: not published", "lacking",
	}[r]
}
