// Package encode is the encoder of one sink's loop: see [Encoder]. It computes what
// internal/reconcile needs of each object, and makes records of the items that internal/reconcile
// decides.
//
//	Prepare    an object → its digest, the results of the filter and of the ignore rules
//	Encode     an item → event → value, attributes, key, route; the kept body that goes with it
//	Reject     a rejected record → how its event is made when it is encoded again
//	Forgotten  removes the kept body of an object that leaves the inventory
//	Sealed     removes kept bodies of collections that keep none any more
//	Committed  forgets bodies and decisions that were kept until the commit
//
// What is published of an object is its body without metadata.managedFields and with the
// values redacted that the configuration names. A body that cannot be redacted is withheld.
//
// Where modified events say what changed, the last published body of each object is kept in the
// store. It is used only where it is certain that consumers have it: the inventory entry names its
// resourceVersion and digest, and nothing of the object is in doubt.
package encode
