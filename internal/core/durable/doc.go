// Package durable defines the form in which the state of internal/core/reconcile is kept in a checkpoint store.
//
//	key                                      value
//	c/<collection>                           a reconcile.Record as JSON
//	p/<collection>                           a reconcile.Progress: position and highest version seen, "1042 1043"
//	o/<collection>/<namespace>/<name>        a reconcile.Object, about 53 bytes
//	d/<collection>                           a reconcile.Draft as JSON
//	i/<collection>/<namespace>/<name>/<uid>  a reconcile.Intent
//	s/<storage>                              the epoch of the storage, a decimal number
//	b/<collection>/<namespace>/<name>        a kept body: internal/core/encode
//	n/digests                                the random key of all digests: see LoadKey
//	n/plan                                   the numbers of the plan: internal/core/plan
//	n/owed/edit/<collection>                 the last edit of a collection is still to be published
//	n/owed/plan/<resource>                   the plan number of a resource is still to be published
//	n/audit, n/audit-histories               how far audit records were read, and of which storages: internal/attribution/attribute
//	a/<collection>/<number>                  a change whose request is not known yet: internal/attribution/attribute
//	r/<request>                              a refused request whose event is not published yet: internal/attribution/attribute
//
// [checkpoint.Version] is the version of this format. Stores record it.
//
// A collection's ID has no slash. The namespace of a cluster-scoped object is empty. The uid
// of an intent is the rest of the key and may contain slashes.
package durable
