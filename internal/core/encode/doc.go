// Package encode is the encoder of one sink's loop: see [Encoder]. It computes the digests and filter
// results of each object for internal/core/reconcile, and makes records of the items that internal/core/reconcile
// emits.
//
//	Prepare    an object → its digest, the results of the filter and of the ignore rules
//	Encode     an item → event → value, attributes, key, route; the kept body that goes with it
//	Reject     a rejected record → how its event is made when it is encoded again
//	Forgotten  removes the kept body of an object that leaves the inventory
//	Sealed     removes kept bodies of collections that no longer keep bodies
//	Committed  drops bodies and decisions that are needed only until the commit
//
// The published body of an object has no metadata.managedFields, and the values that the
// configuration names are redacted. A body that cannot be redacted is left out of its event.
//
// If modified events say what changed, the last published body of each object is kept in the
// store. It is used only if it is certain that consumers have it: the inventory entry names its
// resourceVersion and digest, and no event of the object is in doubt.
package encode
