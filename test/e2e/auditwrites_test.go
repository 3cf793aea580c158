package e2e

import (
	"fmt"
	"net/http"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// create creates a private object.
func (w *writer) create() error {
	t := w.types[w.random.IntN(len(w.types))]
	w.names++
	o := &object{typ: t, name: fmt.Sprintf("p-%d-%d", w.number, w.names)}
	o.finalizers = (t.Type == w.widgets || t.Type == kube.ConfigMaps) && w.chance(30)
	o.mutated = t.Type == kube.ConfigMaps && !o.finalizers && w.chance(30)
	c := w.truth.begin(&call{who: w.user(), what: "create", name: t.Resource + "/" + o.name, provable: true, private: true})
	body := newBody(t, o.name, stampOf(c))
	m := metaOf(body)
	if o.finalizers {
		m["finalizers"] = []any{"example.com/hold"}
	}
	if o.mutated {
		m["labels"].(map[string]any)["mutate"] = "yes"
	}
	method, path, kind := http.MethodPost, t.path, jsonType
	switch w.random.IntN(5) {
	case 0:
		delete(m, "name")
		m["generateName"] = o.name + "-"
	case 1:
		c.what, method, kind = "apply that creates", http.MethodPatch, applyType
		path += "/" + o.name + "?fieldManager=test&force=true"
	}
	r, err := w.do(c, method, path, kind, text(body))
	if err != nil || !r.ok() {
		return err
	}
	o.name, o.uid, o.rv, o.body = r.meta("name"), r.meta("uid"), r.meta("resourceVersion"), r.body
	w.truth.lock(func() { w.truth.made[o.uid+"/"+o.rv] = c })
	w.objects = append(w.objects, o)
	return nil
}

// write is a way to write to a private object. It returns a call that has been made; nil: it does not apply to this object.
type write func(w *writer, o *object) (*call, answer, error)

// send begins a call and makes it. The body may need its number.
func (w *writer) send(o *object, c call, method, path, contentType string, body func(c *call) string) (*call, answer, error) {
	c.who, c.private = w.user(), true
	c.name = o.typ.Resource + "/" + o.name
	made := w.truth.begin(&c)
	r, err := w.do(made, method, o.typ.path+"/"+o.name+path, contentType, body(made))
	return made, r, err
}

func put(what string, change bool, version func(rv string) string) write {
	return func(w *writer, o *object) (*call, answer, error) {
		rv := version(o.rv)
		if rv == "" && !o.typ.blindPut {
			return nil, answer{}, nil
		}
		conditional := rv == o.rv
		return w.send(o, call{what: what, provable: conditional, conditions: conditional}, http.MethodPut, "", jsonType, func(c *call) string {
			body := copyOf(o.body)
			if m := metaOf(body); rv == "" {
				delete(m, "resourceVersion")
			} else {
				m["resourceVersion"] = rv
			}
			if change {
				setStamp(body, stampOf(c))
			}
			return text(body)
		})
	}
}

func patch(what, contentType, query, format string) write {
	return func(w *writer, o *object) (*call, answer, error) {
		if contentType == strategicType && !o.typ.strategic {
			return nil, answer{}, nil
		}
		return w.send(o, call{what: what}, http.MethodPatch, query, contentType, func(c *call) string {
			return strings.ReplaceAll(format, "STAMP", stampOf(c))
		})
	}
}

const (
	stampPatch = `{"metadata":{"annotations":{"stamp":"STAMP"}}}`
	sameLabel  = `{"metadata":{"labels":{"fixed":"1"}}}`
	applyQuery = "?fieldManager=test&force=true"
)

func exact(rv string) string  { return rv }
func none(string) string      { return "" }
func zeros(rv string) string  { return "00" + rv }
func older(rv string) string  { return "1" + strings.Repeat("0", max(0, len(rv)-2)) }
func absent(rv string) string { return rv + "0" }

// privateWrites are the ways to write to a private object, each as often as it is here.
var privateWrites = []write{
	put("PUT with version", true, exact), put("PUT with version", true, exact), put("PUT with version", true, exact),
	put("PUT without version", true, none),
	put("PUT of the same with version", false, exact), put("PUT of the same with version", false, exact),
	put("PUT of the same without version", false, none),
	put("PUT of the same, version with zeros", false, zeros), put("PUT, version with zeros", true, zeros),
	put("PUT with an old version", true, older), put("PUT with a future version", true, absent),
	patch("merge patch", mergeType, "", stampPatch), patch("merge patch", mergeType, "", stampPatch),
	patch("JSON patch", jsonPatchType, "", `[{"op":"add","path":"/metadata/annotations/stamp","value":"STAMP"}]`),
	patch("strategic merge patch", strategicType, "", stampPatch),
	patch("empty merge patch", mergeType, "", `{}`), patch("merge patch of the same", mergeType, "", sameLabel),
	patch("empty JSON patch", jsonPatchType, "", `[]`), patch("JSON patch of the same", jsonPatchType, "", `[{"op":"replace","path":"/metadata/labels/fixed","value":"1"}]`),
	patch("strategic merge patch of the same", strategicType, "", sameLabel),
	patch("dry run of a merge patch", mergeType, "?dryRun=All", stampPatch),
	patch("JSON patch whose test fails", jsonPatchType, "", `[{"op":"test","path":"/metadata/labels/fixed","value":"2"},{"op":"add","path":"/metadata/annotations/stamp","value":"STAMP"}]`),
	patch("patch that is invalid", mergeType, "", `{"metadata":{"labels":{"fixed":"no label value"},"annotations":{"stamp":"STAMP"}}}`),
	applies, applies, appliesAgain, createsAgain, writesToNothing, dryRuns,
	scales, scales, scalesToTheSame, setsStatus, setsStatus, setsTheSameStatus, binds, binds,
	deletes, deletes, deletes, deletes, deletesDry, deletesAnother, deletesVersion, deletesSlowly, evicts, evicts, deletesSeveral, finalizes, finalizes,
}

// change writes to a private object.
func (w *writer) change(o *object) error {
	c, r, err := privateWrites[w.random.IntN(len(privateWrites))](w, o)
	switch {
	case err != nil:
		return err
	case c == nil:
		return w.change(o)
	case c.kind == kindOther:
		w.wrote(o, c, r)
		other := r.ok() && r.meta("uid") != "" && r.meta("uid") != o.uid
		if c.code == 0 || c.code >= 429 || c.code < 300 && !r.ok() || other { // what has become of the object is not known
			w.lose(o)
		}
	case c.code != 404 && c.code != 409 && c.code != 422:
		w.removed(o, c, r)
	}
	return nil
}

// removed finds out what a call that removes an object has done.
func (w *writer) removed(o *object, c *call, r answer) {
	if !r.ok() || c.uid != o.uid {
		w.lose(o)
		return
	}
	now := w.read(o.typ, o.name)
	switch {
	case now.code == 404:
		w.truth.lock(func() { w.truth.ended[o.uid] = c })
		w.lose(o)
	case !now.ok() || now.meta("uid") != o.uid:
		w.lose(o)
	default:
		w.wrote(o, c, now)
		o.terminating = now.meta("deletionTimestamp") != ""
	}
}

func applies(w *writer, o *object) (*call, answer, error) {
	c, r, err := w.send(o, call{what: "apply"}, http.MethodPatch, applyQuery, applyType, func(c *call) string {
		body := newBody(o.typ, o.name, stampOf(c))
		if kept := metaOf(o.body)["finalizers"]; kept != nil { // an apply without those that an apply has set would remove them
			metaOf(body)["finalizers"] = kept
		}
		delete(body, "spec") // that of a pod is completed by the API server
		delete(body, "data")
		o.applied = text(body)
		if w.form.yaml && w.chance(30) {
			if y, err := yaml.JSONToYAML([]byte(o.applied)); err == nil {
				o.applied = string(y)
			}
		}
		return o.applied
	})
	if !r.ok() {
		o.applied = ""
	}
	return c, r, err
}

// appliesAgain applies what was applied before: this can change nothing, or set what was changed meanwhile back.
func appliesAgain(w *writer, o *object) (*call, answer, error) {
	if o.applied == "" {
		return nil, answer{}, nil
	}
	return w.send(o, call{what: "apply of the same"}, http.MethodPatch, applyQuery, applyType, func(*call) string { return o.applied })
}

func createsAgain(w *writer, o *object) (*call, answer, error) {
	c := w.truth.begin(&call{who: w.user(), what: "create of what exists", private: true})
	r, err := w.do(c, http.MethodPost, o.typ.path, jsonType, text(newBody(o.typ, o.name, stampOf(c))))
	return c, r, err
}

func writesToNothing(w *writer, o *object) (*call, answer, error) {
	c := w.truth.begin(&call{who: w.user(), what: "patch of what does not exist", private: true})
	r, err := w.do(c, http.MethodPatch, o.typ.path+"/absent", mergeType, strings.ReplaceAll(stampPatch, "STAMP", stampOf(c)))
	return c, r, err
}

func dryRuns(w *writer, o *object) (*call, answer, error) {
	return w.send(o, call{what: "dry run of a PUT"}, http.MethodPut, "?dryRun=All", jsonType, func(c *call) string {
		body := copyOf(o.body)
		setStamp(body, stampOf(c))
		return text(body)
	})
}

func scales(w *writer, o *object) (*call, answer, error) {
	if o.typ.Type != kube.Deployments {
		return nil, answer{}, nil
	}
	if w.chance(50) {
		return w.send(o, call{what: "PUT of the scale"}, http.MethodPut, "/scale", jsonType, func(c *call) string {
			return fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":%q,"resourceVersion":%q},"spec":{"replicas":%d}}`, o.name, o.rv, c.n)
		})
	}
	return w.send(o, call{what: "patch of the scale"}, http.MethodPatch, "/scale", mergeType, func(c *call) string {
		return fmt.Sprintf(`{"spec":{"replicas":%d}}`, c.n)
	})
}

func scalesToTheSame(w *writer, o *object) (*call, answer, error) {
	if o.typ.Type != kube.Deployments {
		return nil, answer{}, nil
	}
	return w.send(o, call{what: "patch of the scale to the same"}, http.MethodPatch, "/scale", mergeType, func(*call) string { return `{}` })
}

func setsStatus(w *writer, o *object) (*call, answer, error) {
	switch o.typ.Type {
	case kube.Pods:
		return patch("patch of the status", mergeType, "/status", `{"status":{"message":"STAMP"}}`)(w, o)
	case kube.Deployments:
		return patch("patch of the status", strategicType, "/status", `{"status":{"conditions":[{"type":"Stamp","status":"True","message":"STAMP"}]}}`)(w, o)
	}
	return nil, answer{}, nil
}

func setsTheSameStatus(w *writer, o *object) (*call, answer, error) {
	if o.typ.Type != kube.Pods && o.typ.Type != kube.Deployments {
		return nil, answer{}, nil
	}
	return patch("empty patch of the status", mergeType, "/status", `{}`)(w, o)
}

func binds(w *writer, o *object) (*call, answer, error) {
	if o.typ.Type != kube.Pods || o.bound || o.terminating {
		return nil, answer{}, nil
	}
	c, r, err := w.send(o, call{what: "binding"}, http.MethodPost, "/binding", jsonType, func(c *call) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Binding","metadata":{"name":%q},"target":{"kind":"Node","name":%q}}`, o.name, stampOf(c))
	})
	if err != nil || !r.ok() {
		return c, r, err
	}
	o.bound = true
	return c, w.read(o.typ, o.name), nil
}

// deletion makes a call that deletes a private object.
func (w *writer) deletion(o *object, what, options string) (*call, answer, error) {
	return w.send(o, call{what: what, kind: kindDelete, uid: o.uid}, http.MethodDelete, "", jsonType, func(*call) string {
		return `{"apiVersion":"v1","kind":"DeleteOptions"` + options + `}`
	})
}

func deletes(w *writer, o *object) (*call, answer, error) {
	options := ""
	if o.bound {
		options = `,"gracePeriodSeconds":0`
	}
	return w.deletion(o, "delete", options)
}

func deletesDry(w *writer, o *object) (*call, answer, error) {
	return w.send(o, call{what: "dry run of a delete"}, http.MethodDelete, "?dryRun=All", jsonType, func(*call) string { return "" })
}

func deletesAnother(w *writer, o *object) (*call, answer, error) {
	return w.deletion(o, "delete with another uid", `,"preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}`)
}

func deletesVersion(w *writer, o *object) (*call, answer, error) {
	if o.bound {
		return nil, answer{}, nil
	}
	return w.deletion(o, "delete of a version", fmt.Sprintf(`,"preconditions":{"uid":%q,"resourceVersion":%q}`, o.uid, o.rv))
}

// deletesSlowly leaves a pod on a node terminating, and a Deployment until a finalizer is removed.
func deletesSlowly(w *writer, o *object) (*call, answer, error) {
	switch {
	case o.bound && !o.terminating:
		return w.deletion(o, "delete with a grace period", "")
	case o.typ.Type == kube.Deployments:
		o.finalizers = true
		return w.deletion(o, "delete in the foreground", `,"propagationPolicy":"Foreground"`)
	}
	return nil, answer{}, nil
}

func evicts(w *writer, o *object) (*call, answer, error) {
	if o.typ.Type != kube.Pods {
		return nil, answer{}, nil
	}
	return w.send(o, call{what: "eviction", kind: kindEvict, uid: o.uid}, http.MethodPost, "/eviction", jsonType, func(*call) string {
		return fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q},"deleteOptions":{"preconditions":{"uid":%q}}}`, o.name, o.uid)
	})
}

// deletesSeveral deletes one private object by a deletecollection.
func deletesSeveral(w *writer, o *object) (*call, answer, error) {
	if o.bound || o.terminating {
		return nil, answer{}, nil
	}
	c := w.truth.begin(&call{who: w.user(), what: "deletecollection", kind: kindDelete, name: o.typ.Resource + "/" + o.name, uid: o.uid, private: true})
	r, err := w.do(c, http.MethodDelete, o.typ.path+"?fieldSelector=metadata.name%3D"+o.name, jsonType, "")
	return c, r, err
}

// finalizes removes the finalizers.
func finalizes(w *writer, o *object) (*call, answer, error) {
	if !o.finalizers || !o.terminating {
		return nil, answer{}, nil
	}
	if w.chance(50) {
		return w.send(o, call{what: "PUT without finalizers", kind: kindFinalize, uid: o.uid}, http.MethodPut, "", jsonType, func(c *call) string {
			body := copyOf(o.body)
			delete(metaOf(body), "finalizers")
			setStamp(body, stampOf(c))
			return text(body)
		})
	}
	return w.send(o, call{what: "patch without finalizers", kind: kindFinalize, uid: o.uid}, http.MethodPatch, "", mergeType, func(c *call) string {
		return fmt.Sprintf(`{"metadata":{"finalizers":null,"annotations":{"stamp":%q}}}`, stampOf(c))
	})
}

// shared writes to an object to which the others write, too. Every write has a stamp of its own, or cannot change anything.
func (w *writer) shared() error {
	t := w.types[w.random.IntN(len(w.types))]
	name := fmt.Sprintf("shared-%d", w.random.IntN(sharedObjects))
	at := t.path + "/" + name
	c := &call{who: w.user(), name: t.Resource + "/" + name}
	merge := func(format string) (string, string, string, string) {
		return http.MethodPatch, at, mergeType, strings.ReplaceAll(format, "STAMP", stampOf(c))
	}
	begin := func(what string) { c.what = what; w.truth.begin(c) }
	var method, path, kind, body string
	switch n := w.random.IntN(20); {
	case n < 4:
		now := w.read(t, name)
		if !now.ok() {
			c.provable = true
			begin("create")
			o := newBody(t, name, stampOf(c))
			if t.Type == w.widgets && w.chance(50) {
				metaOf(o)["finalizers"] = []any{"example.com/hold"}
			}
			method, path, kind, body = http.MethodPost, t.path, jsonType, text(o)
			break
		}
		c.provable, c.conditions = true, true
		if now.meta("deletionTimestamp") != "" { // it may keep no finalizer
			return w.end(t, name, now)
		}
		begin("PUT with version")
		if t.blindPut && w.chance(30) {
			c.what, c.provable, c.conditions = "PUT without version", false, false
			delete(metaOf(now.body), "resourceVersion")
		}
		setStamp(now.body, stampOf(c))
		method, path, kind, body = http.MethodPut, at, jsonType, text(now.body)
	case n < 8:
		begin("merge patch")
		method, path, kind, body = merge(stampPatch)
		if w.chance(25) { // the API server stores the object, and cannot make the table: its answer has code 400
			c.what, c.accept = "merge patch with an answer that cannot be made", "application/json;as=Table;v=v1;g=meta.k8s.io"
			path += "?includeObject=x"
		}
	case n < 10:
		begin("JSON patch")
		method, path, kind, body = http.MethodPatch, at, jsonPatchType, fmt.Sprintf(`[{"op":"add","path":"/metadata/annotations/stamp","value":%q}]`, stampOf(c))
	case n < 11:
		begin("apply")
		o := newBody(t, name, stampOf(c))
		c.provable = true // where it creates
		method, path, kind, body = http.MethodPatch, at+applyQuery, applyType, text(o)
	case n < 13:
		begin("empty merge patch")
		method, path, kind, body = merge(`{}`)
	case n < 15:
		begin("merge patch of the same")
		method, path, kind, body = merge(sameLabel)
	case n < 16 && t.Type == kube.Deployments:
		begin("patch of the scale")
		method, path, kind, body = http.MethodPatch, at+"/scale", mergeType, fmt.Sprintf(`{"spec":{"replicas":%d}}`, c.n)
	case n < 17 && t.Type == kube.Pods:
		begin("patch of the status")
		method, path, kind, body = http.MethodPatch, at+"/status", mergeType, fmt.Sprintf(`{"status":{"message":%q}}`, stampOf(c))
	case n < 18:
		now := w.read(t, name)
		if !now.ok() {
			return nil
		}
		if now.meta("deletionTimestamp") != "" {
			return w.end(t, name, now)
		}
		c.kind = kindDelete
		if w.chance(25) {
			begin("deletecollection")
			method, path, kind, body = http.MethodDelete, t.path+"?fieldSelector=metadata.name%3D"+name, jsonType, ""
			break
		}
		options := ""
		if w.chance(50) {
			c.uid = now.meta("uid")
			options = fmt.Sprintf(`,"preconditions":{"uid":%q}`, c.uid)
		}
		begin("delete")
		method, path, kind, body = http.MethodDelete, at, jsonType, `{"apiVersion":"v1","kind":"DeleteOptions"`+options+`}`
	case n < 19 && t.Type == kube.Pods:
		c.kind = kindEvict
		begin("eviction")
		method, path, kind, body = http.MethodPost, at+"/eviction", jsonType, fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q}}`, name)
	default:
		begin("strategic merge patch")
		method, path, kind, body = http.MethodPatch, at, mergeType, strings.ReplaceAll(stampPatch, "STAMP", stampOf(c))
		if t.strategic {
			kind = strategicType
		}
	}
	r, err := w.do(c, method, path, kind, body)
	w.wroteShared(c, r)
	return err
}

// end removes the finalizers of a shared object that is to be removed.
func (w *writer) end(t *auditType, name string, now answer) error {
	c := w.truth.begin(&call{who: w.user(), what: "patch without finalizers", kind: kindFinalize, name: t.Resource + "/" + name, uid: now.meta("uid")})
	_, err := w.do(c, http.MethodPatch, t.path+"/"+name, mergeType, fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null,"annotations":{"stamp":%q}}}`, now.meta("uid"), stampOf(c)))
	return err
}
