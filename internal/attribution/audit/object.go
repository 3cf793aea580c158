package audit

import "strings"

// object is what is read of a request's or response's object.
type object struct {
	kind, apiVersion string
	meta             Answer
}

// isStored reports whether it may be an object that the API server stores, or a subresource that has the metadata of one. Others have no UID.
func (o *object) isStored() bool {
	switch o.apiVersion + "/" + o.kind {
	case "v1/Status", "meta.k8s.io/v1/Table":
		return false
	}
	return o.meta.UID != ""
}

func readObject(v value) (o object, err error) {
	if !v.isObject() {
		return o, nil
	}
	var spec value
	err = v.members(func(name []byte, v value) (err error) {
		switch string(name) {
		case "kind":
			o.kind, err = v.text()
		case "apiVersion":
			o.apiVersion, err = v.text()
		case "metadata":
			err = o.meta.read(v)
		case "spec":
			spec = v
		}
		return err
	})
	if err != nil || o.apiVersion != "v1" || o.kind != "Namespace" || !spec.isObject() {
		return o, err
	}
	finalizers, err := spec.at("finalizers") // a Namespace has some there, too
	if err == nil {
		err = o.meta.keep(finalizers)
	}
	return o, err
}

// keep says that the elements of a list of finalizers keep the object.
func (a *Answer) keep(finalizers value) error {
	return finalizers.elements(func(value) error {
		a.Bare = false
		return nil
	})
}

func (a *Answer) read(metadata value) error {
	a.Bare = true
	return metadata.members(func(name []byte, v value) (err error) {
		switch string(name) {
		case "namespace":
			a.Namespace, err = v.text()
		case "name":
			a.Name, err = v.text()
		case "uid":
			a.UID, err = v.text()
		case "resourceVersion":
			a.Version, err = v.version()
		case "deletionTimestamp":
			a.Ending = !v.isNull()
		case "deletionGracePeriodSeconds":
			a.Bare = a.Bare && (v.isNull() || string(v) == "0")
		case "finalizers":
			err = a.keep(v)
		}
		return err
	})
}

// readObjects reads what the objects say, after all but the actor.
func (r *Record) readObjects(e *event) error {
	if !e.request.isNull() && e.request[0] == '"' || !e.response.isNull() && e.response[0] == '"' {
		r.Truncated = true // by Azure
	}
	dryRun, err := queryDryRun(e.uri)
	if err != nil {
		return err
	}
	r.DryRun = dryRun
	switch {
	case r.Verb == "update":
		err = r.readUpdate(e.request)
	case r.Verb == "delete" || r.Verb == "deletecollection":
		err = r.readDelete(e)
	case r.Verb == "create" && r.Subresource == "eviction":
		err = r.readEviction(e.request)
	default:
		r.Expected = ""
	}
	if err != nil {
		return err
	}
	r.Expected = plainVersion(r.Expected)
	if r.Verb == "deletecollection" {
		return r.readSelected(e.response)
	}
	o, err := readObject(e.response)
	if err == nil && o.isStored() {
		r.Answer = &o.meta
	}
	return err
}

// maxSelected and maxSelectedBytes bound Record.Selected.
const maxSelected, maxSelectedBytes = 100, 16 << 10

// readSelected reads the response of a deletecollection: the list of what it has selected, deleted or not (Store.DeleteCollection in
// pkg/registry/generic/registry/store.go of k8s.io/apiserver).
func (r *Record) readSelected(response value) error {
	if !response.isObject() {
		return nil
	}
	items, err := response.at("items")
	if err != nil || items.isNull() {
		return err
	}
	of, err := response.at("kind")
	if err != nil {
		return err
	}
	if kind, err := of.text(); err != nil || !strings.HasSuffix(kind, "List") {
		return err
	}
	selected, bytes := []string{}, 0
	err = items.elements(func(v value) error {
		o, err := readObject(v)
		selected, bytes = append(selected[:min(len(selected), maxSelected)], o.meta.Name), bytes+len(o.meta.Name)
		return err
	})
	if err == nil && len(selected) <= maxSelected && bytes <= maxSelectedBytes {
		r.Selected = selected
	}
	return err
}

func (r *Record) readUpdate(request value) error {
	o, err := readObject(request)
	if o.meta.UID != "" {
		r.UID = o.meta.UID
	}
	if o.meta.Version != "" {
		r.Expected = o.meta.Version
	}
	return err
}

// readDelete reads the DeleteOptions. If the request has a body, the API server does not read them from the query (DeleteResource in
// k8s.io/apiserver pkg/endpoints/handlers/delete.go). Whether it has one is not known where objects are not logged: below level Request,
// and for requests that are passed on to another API server.
func (r *Record) readDelete(e *event) error {
	r.Expected = ""
	if e.request.isObject() {
		r.DryRun = false
		return e.request.members(func(name []byte, v value) error {
			switch string(name) {
			case "dryRun":
				return v.elements(r.isDryRun)
			case "preconditions":
				return r.readPreconditions(v)
			}
			return nil
		})
	}
	if !e.response.isObject() || r.Truncated {
		r.DryRun, r.MaybeDryRun = false, true
	}
	return nil
}

func (r *Record) isDryRun(value) error {
	r.DryRun = true
	return nil
}

// readPreconditions reads those of a delete. Those of a deletecollection are of no one object.
func (r *Record) readPreconditions(v value) error {
	if r.Verb != "delete" {
		return nil
	}
	return v.members(func(name []byte, v value) (err error) {
		switch string(name) {
		case "uid":
			r.UID, err = v.text()
		case "resourceVersion":
			r.Expected, err = v.version()
		}
		return err
	})
}

// readEviction reads the options of the deletion, which are in the body or in the query.
func (r *Record) readEviction(request value) error {
	r.Expected = ""
	if !request.isObject() {
		r.MaybeDryRun = !r.DryRun
		return nil
	}
	dryRun, err := request.at("deleteOptions", "dryRun")
	if err != nil {
		return err
	}
	return dryRun.elements(r.isDryRun)
}

// plainVersion returns a resourceVersion as the API server writes it. It reads one with strconv.ParseUint, so leading zeros do not
// matter, and 0 is no version (ParseResourceVersion in k8s.io/apiserver pkg/storage/api_object_versioner.go).
func plainVersion(v string) string {
	for _, c := range v {
		if c < '0' || c > '9' {
			return v
		}
	}
	return strings.TrimLeft(v, "0")
}
