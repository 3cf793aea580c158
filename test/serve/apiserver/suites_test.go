// Package apiserver runs the tests that Kubernetes has for the storages of its API server (k8s.io/apiserver/pkg/storage/testing) against
// `bridge serve`: those of reads and watches.
package apiserver

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// suites are the functions of the package that apply. Each has a server and a bus of its own. The parameters that say what the storage is are those
// of etcd: what was written is read by the next list, also without a resourceVersion or with 0.
var suites = map[string]func(t *testing.T){
	"Get":                    with(storagetesting.RunTestGet),
	"ListPaging":             with(storagetesting.RunTestListPaging),
	"GetListRecursivePrefix": with(storagetesting.RunTestGetListRecursivePrefix),
	"NamespaceScopedList":    with(storagetesting.RunTestNamespaceScopedList),
	"List": func(t *testing.T) {
		s := newServer(t, true)
		storagetesting.RunTestList(t.Context(), t, s, s.compact, false, nil)
	},
	"ConsistentList": func(t *testing.T) {
		s := newServer(t, true)
		storagetesting.RunTestConsistentList(t.Context(), t, s, s.increase, false, true, true)
	},
	"GetListNonRecursive": func(t *testing.T) {
		s := newServer(t, true)
		storagetesting.RunTestGetListNonRecursive(t.Context(), t, s.increase, s)
	},
	"ListContinuation": func(t *testing.T) {
		storagetesting.RunTestListContinuation(t.Context(), t, newServer(t, true), nil)
	},
	"ListContinuationWithFilter": func(t *testing.T) {
		storagetesting.RunTestListContinuationWithFilter(t.Context(), t, newServer(t, true), nil)
	},
	"ListPaginationRareObject": func(t *testing.T) {
		storagetesting.RunTestListPaginationRareObject(t.Context(), t, newServer(t, false), nil)
	},
	"ListInconsistentContinuation": func(t *testing.T) {
		s := newServer(t, true)
		storagetesting.RunTestListInconsistentContinuation(t.Context(), t, s, s.compact)
	},
	"ListResourceVersionMatch": func(t *testing.T) {
		storagetesting.RunTestListResourceVersionMatch(t.Context(), t, newServer(t, false))
	},
	"CompactRevision": func(t *testing.T) {
		s := newServer(t, true)
		storagetesting.RunTestCompactRevision(t.Context(), t, s, s.increase, s.compact)
	},

	"Watch": with(storagetesting.RunTestWatch),
	"WatchFromZero": func(t *testing.T) {
		s := newServer(t, true)
		storagetesting.RunTestWatchFromZero(t.Context(), t, s, s.compact)
	},
	"DeleteTriggerWatch":                     with(storagetesting.RunTestDeleteTriggerWatch),
	"WatchFromNonZero":                       with(storagetesting.RunTestWatchFromNonZero),
	"DelayedWatchDelivery":                   with(storagetesting.RunTestDelayedWatchDelivery),
	"WatcherTimeout":                         with(storagetesting.RunTestWatcherTimeout),
	"WatchDeleteEventObjectHaveLatestRV":     with(storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV),
	"NamespaceScopedWatch":                   with(storagetesting.RunTestNamespaceScopedWatch),
	"BookmarksWithCorrectResourceVersion":    with(storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion),
	"SendInitialEventsBackwardCompatibility": with(storagetesting.RunSendInitialEventsBackwardCompatibility),
	"WatchSemanticInitialEventsExtended":     with(storagetesting.RunWatchSemanticInitialEventsExtended),
	"WatchListMatchSingle":                   with(storagetesting.RunWatchListMatchSingle),
	"WatchSemantics": func(t *testing.T) {
		storagetesting.RunWatchSemantics(t.Context(), t, arrived{newServer(t, true)})
	},
	"ClusterScopedWatch": func(t *testing.T) {
		storagetesting.RunTestClusterScopedWatch(t.Context(), t, newServer(t, false))
	},
	"WatchDispatchBookmarkEvents": func(t *testing.T) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(t.Context(), t, newServer(t, true), true)
	},
}

// with returns a suite of a resource with namespaces.
func with(run func(context.Context, *testing.T, storage.Interface)) func(*testing.T) {
	return func(t *testing.T) { run(t.Context(), t, newServer(t, true)) }
}

const (
	writes    = "bridge serve is read-only: writes are those of the test itself"
	corrupt   = "about objects that etcd holds and that cannot be decrypted or decoded: the mirror decodes what it reads from the bus, before it serves it"
	noPath    = "the key is that of a directory as an object, or of what is below an object: no path of the Kubernetes API has it"
	lookahead = "with a selector, bridge serve reads up to the next object that it selects: a page without more objects behind it has no continue token"
	benchmark = "a benchmark: make serve-scale measures bridge serve"
)

// notCalled are the other functions of the package, with the reason.
var notCalled = map[string]string{
	"RunTestCreate":                                     writes,
	"RunTestCreateWithTTL":                              writes,
	"RunTestCreateWithKeyExist":                         writes,
	"RunTestUnconditionalDelete":                        writes,
	"RunTestConditionalDelete":                          writes,
	"RunTestDeleteWithSuggestion":                       writes,
	"RunTestDeleteWithSuggestionAndConflict":            writes,
	"RunTestDeleteWithConflict":                         writes,
	"RunTestDeleteWithSuggestionOfDeletedObject":        writes,
	"RunTestValidateDeletionWithSuggestion":             writes,
	"RunTestValidateDeletionWithOnlySuggestionValid":    writes,
	"RunTestPreconditionalDeleteWithSuggestion":         writes,
	"RunTestPreconditionalDeleteWithOnlySuggestionPass": writes,
	"RunTestGuaranteedUpdate":                           writes,
	"RunTestGuaranteedUpdateWithTTL":                    writes,
	"RunTestGuaranteedUpdateChecksStoredData":           writes,
	"RunTestGuaranteedUpdateWithConflict":               writes,
	"RunTestGuaranteedUpdateWithSuggestionAndConflict":  writes,

	"RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError":   corrupt,
	"RunTestDeleteExpectedTransformOrDecodeError":                         corrupt,
	"RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError": corrupt,
	"RunTestGetListWithErrorAggregation":                                  corrupt,
	"RunTestGetListWithoutErrorAggregation":                               corrupt,
	"RunTestTransformationFailure":                                        corrupt,
	"RunTestWatchError":                                                   corrupt,
	"RunTestWatchWithUnsafeDelete":                                        corrupt,
	"RunWatchErrorIsBlockingFurtherEvents":                                corrupt,

	"RunTestStats":                     "about the estimated size of objects, which the API server uses for its own flow control",
	"RunTestKeySchema":                 "about the errors for keys of etcd: a client of the Kubernetes API sends paths",
	"RunTestWatchContextCancel":        "a request whose context has already ended is never sent",
	"RunTestWatchInitializationSignal": "a signal within the process of the API server, for its flow control",
	"RunOptionalTestProgressNotify":    "an option between the API server and etcd, which the Kubernetes API does not have",

	"RunBenchmarkWriteThroughput": benchmark,
	"RunBenchmarkStoreList":       benchmark,
	"RunBenchmarkStoreStats":      benchmark,
}

// differences are the subtests that bridge serve does not pass by design, with the reason. A * is one part of a path.
var differences = map[string]string{
	"GetListRecursivePrefix/*/NonRecursive_on_resource_prefix_doesn't_return_any_objects":  noPath,
	"GetListRecursivePrefix/*/NonRecursive_on_namespace_prefix_doesn't_return_any_objects": noPath,
	"GetListRecursivePrefix/*/Recursive_on_object_key_(prefix)_doesn't_return_anything":    noPath,
	"GetListRecursivePrefix/*/Recursive_on_object_key_(no-prefix)_doesn't_return_anything": noPath,

	"List/test_List_with_filter_returning_only_one_item,_ensure_only_a_single_page_returned":                                                      lookahead,
	"List/test_List_with_filter_returning_only_one_item,_ensure_only_a_single_page_returned_with_current_resource_version_and_match=NotOlderThan": lookahead,
	"List/test_List_with_filter_returning_two_items,_more_pages_possible":                                                                         lookahead,
	"List/test_List_with_filter_returning_two_items,_more_pages_possible_with_current_resource_version_and_match=NotOlderThan":                    lookahead,
}
