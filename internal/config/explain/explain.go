// Package explain describes the keys of the configuration from its JSON Schema.
package explain

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// configSchema has the parts of the configuration's JSON Schema that explain uses.
type configSchema struct {
	Type        string            `json:"type"`
	Description string            `json:"description"`
	Default     json.RawMessage   `json:"default"`
	Enum        []string          `json:"enum"`
	Properties  orderedProperties `json:"properties"`
	Items       *configSchema     `json:"items"`
	AnyOf       []configSchema    `json:"anyOf"`
}

// orderedProperties are the properties of an object, in the order of the schema.
type orderedProperties []struct {
	name   string
	schema configSchema
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *orderedProperties) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(strings.NewReader(string(text)))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var s configSchema
		if err := d.Decode(&s); err != nil {
			return err
		}
		*p = append(*p, struct {
			name   string
			schema configSchema
		}{name.(string), s})
	}
	return nil
}

// Setting is a key of the configuration.
type Setting struct {
	path, kind  string
	description string
	byDefault   string
	values      []string
}

// Settings returns the keys of a configuration, in the order of its JSON Schema.
func Settings(text string) (all []Setting, err error) {
	var root configSchema
	if err := json.Unmarshal([]byte(text), &root); err != nil {
		return nil, fmt.Errorf("read the schema of the configuration: %w", err)
	}
	collect(&all, &root, "")
	return all, nil
}

// collect appends the keys below a schema.
func collect(all *[]Setting, s *configSchema, path string) {
	for i := range s.AnyOf {
		collect(all, &s.AnyOf[i], path)
	}
	if s.Items != nil {
		collect(all, s.Items, path+"[]")
	}
	for i := range s.Properties {
		p := &s.Properties[i]
		at := p.name
		if path != "" {
			at = path + "." + p.name
		}
		one := Setting{path: at, description: p.schema.Description}
		if len(p.schema.Default) > 0 {
			one.byDefault = strings.Trim(string(p.schema.Default), `"`)
		}
		of := p.schema.Type
		for _, choice := range p.schema.AnyOf { // a value, or a reference to one
			of = cmp.Or(of, choice.Type)
			one.values = append(one.values, choice.Enum...)
		}
		one.kind = cmp.Or(kinds[of], "text")
		*all = append(*all, one)
		if at != "sinks[].resources" { // it has the keys of resources
			collect(all, &p.schema, at)
		}
	}
}

// kinds are the types of values as the documentation names them.
var kinds = map[string]string{"object": "map", "array": "list", "boolean": "true, false", "integer": "number", "number": "number"}

// Paths returns the paths of keys.
func Paths(all []Setting) (out []string) {
	for i := range all {
		out = append(out, all[i].path)
	}
	return out
}

var index = regexp.MustCompile(`\[[0-9]*\]`)

// Find returns the settings that a key means: the setting with that path, or every setting whose path ends with it.
func Find(all []Setting, key string) (found []Setting, err error) {
	key = strings.Trim(index.ReplaceAllString(key, ""), ".")
	plain := func(s Setting) string { return strings.ReplaceAll(s.path, "[]", "") }
	if i := slices.IndexFunc(all, func(s Setting) bool { return plain(s) == key }); i >= 0 {
		return all[i : i+1], nil
	}
	if rest, ok := strings.CutPrefix(key, "sinks.resources."); ok {
		return Find(all, "resources."+rest)
	}
	for _, s := range all {
		if strings.HasSuffix(plain(s), "."+key) {
			found = append(found, s)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	// The user may have written the end of a path, so suffixes with as many levels as the key are compared.
	levels := strings.Count(key, ".") + 1
	var ends []string
	for _, s := range all {
		parts := strings.Split(plain(s), ".")
		ends = append(ends, strings.Join(parts[max(len(parts)-levels, 0):], "."))
	}
	if near := discovery.Nearest(key, ends, max(1, len(key)/3)); near != "" {
		return nil, fmt.Errorf("the configuration has no key %q; did you mean %q?", key, near)
	}
	return nil, errors.New("the configuration has no key \"" + key + "\": `bridge explain` without a key lists the keys of the first level")
}

// Print prints one Setting, and the keys below it.
func (s *Setting) Print(out io.Writer, all []Setting) error {
	fmt.Fprintf(out, "KEY:      %s\nTYPE:     %s\n", s.path, s.kind)
	if s.byDefault != "" {
		fmt.Fprintf(out, "DEFAULT:  %s\n", s.byDefault)
	}
	if len(s.values) > 0 {
		fmt.Fprintf(out, "VALUES:   %s\n", strings.Join(s.values, ", "))
	}
	if s.description != "" {
		fmt.Fprintf(out, "\n%s\n", wrap(s.description, 80))
	}
	of := s.path
	if of == "sinks[].resources" {
		of = "resources"
	}
	return PrintBelow(out, all, of)
}

// PrintBelow lists the keys directly below a path.
func PrintBelow(out io.Writer, all []Setting, path string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "\nKEYS:\n"
	if path == "" {
		head = "KEYS:\n"
	}
	for i := range all {
		parent, name := "", all[i].path
		if cut := strings.LastIndex(name, "."); cut >= 0 {
			parent, name = name[:cut], name[cut+1:]
		}
		if strings.TrimSuffix(parent, "[]") != path {
			continue
		}
		first, _, _ := strings.Cut(all[i].description, ". ")
		fmt.Fprintf(w, "%s  %s\t%s\t%s\n", head, name, all[i].kind, first)
		head = ""
	}
	return w.Flush()
}

// wrap breaks a text into lines of at most width characters.
func wrap(text string, width int) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}
