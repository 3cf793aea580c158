package model

// Effect is the effect of a change of the configuration on collections that consumers have. docs/upgrade.md explains it to users.
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
	// Replacement: other collections begin. Collections that are no longer wanted stop reading at once, and are closed when
	// every wanted collection of the resource has synced. If they are wanted again before that, a Difference follows.
	Replacement
)

// Row is a row of [Effects].
type Row struct {
	Effect Effect
	// Settings are keys of an entry in the configuration.
	Settings []string
	// Outer are settings of a sink or of the bridge. A change takes effect at a restart.
	Outer []string
}

// Effects is the table of the effects of changes. It holds with and without a restart. If a change is undone before its effect
// is complete, the effect may come twice. Consumers always get a complete copy.
//
// An edit that removes an entry, or leaves out a namespace, ends collections as in [plan.Outcome].
func Effects() []Row {
	return []Row{
		{Difference, []string{"labelSelector", "fieldSelector", "excludeNamespaces", "filter", "ignore", "version"}, nil},
		{Reset, []string{"redact", "drop", "metadataOnly", "types"}, []string{"redact", "secrets.values", "managedFields", "format"}},
		{Reroute, []string{"topic", "subject", "key"}, []string{"topic", "subject", "key"}},
		{Replacement, []string{"resource", "group", "name", "namespaces", "namespaceSelector"}, nil},
		{NoEffect, []string{"snapshot", "syncedEvery", "resync", "verifyEvery", "diff", "changedBy", "headers", "required", "buffer"}, []string{"headers"}},
	}
}
