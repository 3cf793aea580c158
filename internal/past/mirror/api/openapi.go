package api

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	openAPI = "/openapi/v3"
	// schemaVersion is part of the hashes. Change it when documents of the same resources get another form.
	schemaVersion = "2"
	// documentLife is how long clients may keep a document whose hash they have asked for.
	documentLife = 365 * 24 * time.Hour
)

type openAPIPath struct {
	ServerRelativeURL string `json:"serverRelativeURL"`
}

// serveOpenAPI serves the index of OpenAPI v3 documents, or one document. CustomResourceDefinitions give schemas; those
// of other resources say that fields are not known. Those of reviews are Kubernetes' own.
func (s *Server) serveOpenAPI(w http.ResponseWriter, r *http.Request, v view, path string) error {
	if !acceptsJSON(r) {
		return notAcceptable("get")
	}
	prefix := strings.TrimSuffix(r.URL.Path, path) + openAPI + "/"
	byPath := map[string][]*kind{"api/v1": {}}
	for _, k := range s.kinds(v) {
		name := "apis/" + k.gv.String()
		if k.gv.Group == "" {
			name = "api/" + k.gv.Version
		}
		byPath[name] = append(byPath[name], k)
	}
	if path == openAPI {
		paths := map[string]openAPIPath{}
		for name, kinds := range byPath {
			paths[name] = openAPIPath{documentURL(prefix+name, hashOf(kinds))}
		}
		text, err := json.Marshal(map[string]any{"paths": paths})
		if err != nil {
			return err
		}
		if !tagged(w, r, fmt.Sprintf("%X", sha256.Sum256(text))) {
			s.answer(w, json.RawMessage(text))
		}
		return nil
	}
	name := strings.TrimPrefix(path, openAPI+"/")
	kinds, ok := byPath[name]
	if !ok {
		return notFound(r.URL.Path)
	}
	hash := hashOf(kinds)
	if asked := r.URL.Query().Get("hash"); asked != "" {
		if asked != hash {
			http.Redirect(w, r, documentURL(prefix+name, hash), http.StatusMovedPermanently) //nolint:gosec // the path begins with /openapi, /at or /clusters, so it is one of this server
			return nil
		}
		w.Header().Set("Cache-Control", "private, immutable")
		w.Header().Set("Expires", s.now().Add(documentLife).UTC().Format(http.TimeFormat))
	}
	if tagged(w, r, hash) {
		return nil
	}
	release, err := s.acquire(r)
	if err != nil {
		for _, name := range []string{"Cache-Control", "Expires", "Etag"} { // of the document
			w.Header().Del(name)
		}
		return err
	}
	defer release()
	s.answer(w, s.document(kinds))
	return nil
}

// document returns the document of resources of one group version. Others wait while a few are made.
func (s *Server) document(kinds []*kind) any {
	s.documents <- struct{}{}
	defer func() { <-s.documents }()
	return document(kinds, s.Version, s.schema)
}

func acceptsJSON(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	return accept == "" || strings.Contains(accept, "application/json") || strings.Contains(accept, "*/*") || strings.Contains(accept, "application/*")
}

func documentURL(path, hash string) string {
	u := url.URL{Path: path, RawQuery: "hash=" + hash}
	return u.String()
}

// tagged sets the headers of an answer with a tag. It returns true after it has said that the client has the answer.
func tagged(w http.ResponseWriter, r *http.Request, tag string) bool {
	tag = strconv.Quote(tag)
	w.Header().Set("Etag", tag)
	w.Header().Set("Vary", "Accept")
	if slices.Contains(strings.Split(strings.ReplaceAll(r.Header.Get("If-None-Match"), " ", ""), ","), tag) {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	return false
}

// hashOf returns a hash of what the document of resources of one group version says.
func hashOf(kinds []*kind) string {
	h := sha256.New()
	fmt.Fprintln(h, schemaVersion)
	for _, k := range kinds {
		fmt.Fprintf(h, "%q %q %v %s\n", k.plural, k.Kind.Kind, k.Namespaced, k.schemaHash)
	}
	return fmt.Sprintf("%X", h.Sum(nil))
}

type jsonObject = map[string]any

// document returns the OpenAPI v3 document of resources of one group version.
func document(kinds []*kind, version string, schemaOf func(*kind) json.RawMessage) any {
	paths, schemas := jsonObject{}, jsonObject{}
	meta := addSchema(reflect.TypeFor[metav1.ObjectMeta](), schemas)
	for _, k := range kinds {
		gvk := jsonObject{"group": k.gv.Group, "version": k.gv.Version, "kind": k.Kind.Kind}
		at := "/apis/" + k.gv.String() + "/"
		if k.gv.Group == "" {
			at = "/api/" + k.gv.Version + "/"
		}
		if k.review != nil {
			content := jsonObject{"application/json": jsonObject{"schema": k.reviewSchema(gvk, schemas)}}
			paths[at+k.plural] = jsonObject{"post": jsonObject{
				"x-kubernetes-action": "post", "x-kubernetes-group-version-kind": gvk, "requestBody": jsonObject{"content": content, "required": true},
				"responses": jsonObject{"201": jsonObject{"description": "Created", "content": content}},
			}}
			continue
		}
		name := schemaName(k)
		schemas[name] = k.openAPISchema(gvk, meta, schemaOf(k))
		one := at
		if k.Namespaced {
			one += "namespaces/{namespace}/"
		}
		operation := func(action string) jsonObject {
			return jsonObject{"get": jsonObject{
				"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk,
				"responses": jsonObject{"200": jsonObject{"description": "OK", "content": jsonObject{"application/json": jsonObject{"schema": ref(name)}}}},
			}}
		}
		paths[at+k.plural], paths[one+k.plural+"/{name}"] = operation("list"), operation("get")
		if k.Namespaced {
			paths[one+k.plural] = operation("list")
		}
	}
	return jsonObject{
		"openapi": "3.0.0", "info": jsonObject{"title": "kubebridge", "version": version},
		"paths": paths, "components": jsonObject{"schemas": schemas},
	}
}

func ref(name string) jsonObject { return jsonObject{"$ref": "#/components/schemas/" + name} }

// schemaName returns the name that the API server gives the schema of a custom resource: com.example.v1.Widget.
func schemaName(k *kind) string {
	parts := strings.Split(k.gv.Group, ".")
	slices.Reverse(parts)
	return strings.TrimPrefix(strings.Join(append(parts, k.gv.Version, k.Kind.Kind), "."), ".")
}

// openAPISchema returns the schema of a resource: its definition's, with the fields of every object. meta refers to
// metadata's.
func (k *kind) openAPISchema(gvk, meta jsonObject, schema json.RawMessage) any {
	out, properties := jsonObject{}, jsonObject{}
	var known map[string]json.RawMessage
	if len(schema) > 0 && json.Unmarshal(schema, &known) == nil {
		for name, value := range known {
			out[name] = value
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(known["properties"], &fields) == nil {
			for name, value := range fields {
				properties[name] = value
			}
		}
	} else {
		out["description"] = "The fields are not known: the bus has no schema of this resource. Ask the API server of the cluster."
		out["x-kubernetes-preserve-unknown-fields"] = true
	}
	addType(properties)
	properties["metadata"] = jsonObject{"allOf": meta["allOf"], "description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"}
	out["type"], out["properties"], out["x-kubernetes-group-version-kind"] = "object", properties, []any{gvk}
	return out
}

// addType adds the properties that say which type an object has.
func addType(properties jsonObject) {
	docs := metav1.TypeMeta{}.SwaggerDoc()
	for _, name := range []string{"apiVersion", "kind"} {
		properties[name] = jsonObject{"type": "string", "description": docs[name]}
	}
}

// reviewSchema adds the schema of a review, and returns a reference to it.
func (k *kind) reviewSchema(gvk, schemas jsonObject) jsonObject {
	t := reflect.TypeOf(k.review.object()).Elem()
	addSchema(t, schemas)
	name := typeName(t)
	out := schemas[name].(jsonObject)
	addType(out["properties"].(jsonObject))
	out["x-kubernetes-group-version-kind"] = []any{gvk}
	return ref(name)
}

// typeName returns the API server's name for the schema of a struct: io.k8s.api.authorization.v1.ResourceRule.
func typeName(t reflect.Type) string {
	host, path, _ := strings.Cut(t.PkgPath(), "/")
	parts := strings.Split(host, ".")
	slices.Reverse(parts)
	return strings.Join(append(append(parts, strings.Split(path, "/")...), t.Name()), ".")
}

// addSchema adds the schema of one of Kubernetes' structs, with those that it contains, and returns a reference.
func addSchema(t reflect.Type, to jsonObject) jsonObject {
	name := typeName(t)
	r := jsonObject{"allOf": []any{ref(name)}}
	if to[name] != nil {
		return r
	}
	docs := map[string]string{}
	if d, ok := reflect.Zero(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		docs = d.SwaggerDoc()
	}
	properties, required := jsonObject{}, []string{}
	out := jsonObject{"type": "object", "description": docs[""]}
	to[name] = out
	for i := range t.NumField() {
		field, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if field == "" || field == "-" {
			continue
		}
		value := schemaOf(t.Field(i).Type, to)
		if text := docs[field]; text != "" {
			value["description"] = text
		}
		properties[field] = value
		if options == "" {
			required = append(required, field)
		}
	}
	if len(properties) > 0 {
		out["properties"] = properties
	}
	if len(required) > 0 {
		out["required"] = required
	}
	return r
}

func schemaOf(t reflect.Type, to jsonObject) jsonObject {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), to)
	case reflect.String:
		return jsonObject{"type": "string"}
	case reflect.Bool:
		return jsonObject{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return jsonObject{"type": "integer", "format": "int64"}
	case reflect.Map:
		return jsonObject{"type": "object", "additionalProperties": schemaOf(t.Elem(), to)}
	case reflect.Slice:
		return jsonObject{"type": "array", "items": schemaOf(t.Elem(), to)}
	case reflect.Struct:
		if t == reflect.TypeFor[metav1.Time]() {
			return jsonObject{"type": "string", "format": "date-time"}
		}
		return addSchema(t, to)
	}
	return jsonObject{}
}
