// Package plan computes which collections a configuration means on a cluster now, and the outcome
// of each collection that the checkpoint has.
//
//	Entries, catalog, namespaces ── Make ──► Plan ── Outcomes ──► what is wanted, undecided, ended, removed
//	                                                                │
//	                                  Numbers ◄──────── Next ───────┘
//
// [Make], [Plan.Outcomes] and [Numbers.Next] are pure. [Cluster] follows what the API server serves
// and the namespaces that selectors select; a [Follower] makes the plans of one sink with it.
// [Check] makes a plan once and tries to read its collections, without watching for changes.
//
// docs/adr/0017-independent-collections.md has the rules.
package plan
