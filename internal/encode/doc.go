// Package encode looks at objects for internal/reconcile, and makes records of what it decides,
// for one sink: [Encoder] is the loop's encoder.
//
//	Prepare    the digest of an object, what the filter and the ignore rules say of it
//	Encode     an item → event → value, attributes, key, route; the kept body that goes with it
//	Reject     how the event of a rejected record is made so that it fits
//	Committed  kept bodies and decisions that are not needed any more
//
// What is published of an object is its body without metadata.managedFields and with the
// values redacted that the configuration names. A body that cannot be redacted is withheld.
//
// Where modified events say what changed, the last published body of each object is kept in the
// store. It is used only where it is certain that consumers have it: the inventory entry names its
// resourceVersion and digest, and nothing of the object is in doubt.
package encode
