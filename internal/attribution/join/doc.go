// Package join finds the request of the audit log that made a change. It is exact, or it says that it is not: a request is never named
// as the one that made a change unless nothing else is possible.
//
// The package is pure: no I/O, goroutine, clock, log or metric. A [Join] takes changes of objects, records of requests, and what is known
// about their order, and returns a [Verdict] for each change.
//
// # When a verdict is exact
//
// Three kinds of records prove a change, whatever else is missing, because they have the object as the request left it (level
// RequestResponse), and the API server answers so only to a request that wrote:
//
//	creation    code 201, no subresource, and the answer has the UID and the resourceVersion of the change
//	update      code 200, the answer has the UID and the resourceVersion of the change, and the request had named another
//	            resourceVersion, so the API server has compared it
//	removal     a deletion of which the answer is the object, with its UID and the resourceVersion of the removal. The API server
//	            returns the removed object for some resources, for example Pods, Services and ServiceAccounts. It is not proved by an
//	            object with a deletionTimestamp that has finalizers or a grace period, which remains, nor by a Namespace
//
// Nothing else does. A patch, and an update without a resourceVersion, may have changed nothing: then the answer has the resourceVersion of
// somebody else's change. A deletion of another resource answers with success also if another one was quicker. If two records prove a change for different
// users, one of them is wrong, and neither is exact.
//
// All other verdicts need that the records are complete: see [Options.Complete]. Then the request that made a change is among those that
// are known, and the verdict is exact if only one of them is possible. Two things make a request impossible: what it is and what it answers
// (see the table of can), and the order, which is a fact and no timestamp. What its client names does so only where the API server compares it with what it
// replaces: some requests make several writes, with those of others in between.
//
//   - A request that was begun after the change was seen has not made it: [Change.Seen]. The answer to another request counts as seen, too.
//   - A request that was over when the API server's state was still older has not made it: [Join.Floor].
//   - Of two changes of an object, the earlier one was not made by a request that began when the request which made the later one
//     was over.
//
// A request makes one change of an object, except for deletions, which may first set deletionTimestamp, and evictions.
//
// # What is not known
//
// Changes that the API server makes without a request have no record: Events that expire, Endpoints of a removed Service, objects of a removed
// CustomResourceDefinition, of which those with finalizers get a deletionTimestamp first. The caller says where this is possible: [Change.Unrequested].
//
// A mutating webhook that removes the resourceVersion from an update makes the API server skip the comparison; such a webhook makes the
// second proof wrong.
package join
