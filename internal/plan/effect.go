package plan

// Effect is what a change of the configuration does to collections that consumers have. docs/upgrade.md says it to users.
type Effect uint8

// The effects.
const (
	// NoEffect: only later events differ.
	NoEffect Effect = iota
	// Difference: the wanted properties are recorded and the position is voided in one commit. The list
	// after the gap gives exactly the difference.
	Difference
	// Reset: the incarnation ends and another one begins.
	Reset
	// Reroute: the incarnation ends on its recorded route, with a closed event, and another one begins on the new route.
	Reroute
	// Replacement: other collections begin. Those that are not wanted any more stop reading at once, and are closed when
	// every wanted collection of the resource has synced; if they are wanted again before that, a Difference follows.
	Replacement
)

func (e Effect) String() string {
	return [...]string{"nothing", "difference", "reset", "reroute", "replacement"}[e]
}

// Row is a row of [Effects].
type Row struct {
	Effect Effect
	// Settings are those of an entry, as the configuration calls them.
	Settings []string
	// Outer are settings of a sink or of the bridge. They are taken over at a restart.
	Outer []string
}

// Effects is the table of what a change of configuration does. It is the same with and without a restart, and if the change
// is undone before it is through: then the effect may come twice, and never less than consumers need.
//
// An edit that removes an entry, or leaves out a namespace, ends collections as in [Outcome].
func Effects() []Row {
	return []Row{
		{Difference, []string{"labelSelector", "fieldSelector", "excludeNamespaces", "filter", "ignore", "version"}, nil},
		{Reset, []string{"redact", "drop", "metadataOnly", "types"}, []string{"redact", "secrets.values", "managedFields", "format"}},
		{Reroute, []string{"topic", "subject", "key"}, []string{"topic", "subject", "key"}},
		{Replacement, []string{"resource", "group", "name", "namespaces", "namespaceSelector"}, nil},
		{NoEffect, []string{"snapshot", "syncedEvery", "resync", "verifyEvery", "diff", "changedBy", "headers", "required"}, []string{"headers"}},
	}
}
