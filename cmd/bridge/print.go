package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

// Formats for printed events that the stdout sink does not have.
const (
	outputYAML = "yaml" // one document per event
	outputName = "name" // arguments for kubectl: RESOURCE/NAME, and -n NAMESPACE
)

// outputs returns the formats for printed events.
func outputs() []string { return []string{stdout.Pretty, stdout.JSON, outputYAML, outputName} }

// checkJSON checks the value of -o of a command that prints text or JSON.
func checkJSON(output string) error {
	if output != "" && output != "json" {
		return &exitError{exitConfig, fmt.Errorf("-o %s: json is the only other format", output)}
	}
	return nil
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(document(out))
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func checkOutput(output string) error {
	if !slices.Contains(outputs(), output) {
		return &exitError{exitConfig, fmt.Errorf("-o %s: the formats are %s", output, strings.Join(outputs(), ", "))}
	}
	return nil
}

// renderer returns a function that appends a record in a format. whole returns the JSON of a record for the formats json and yaml.
func renderer(output string, color bool, whole func(*event.Record) []byte) func([]byte, *event.Record) []byte {
	switch output {
	case outputName:
		return appendName
	case outputYAML:
		return func(dst []byte, r *event.Record) []byte {
			text, err := history.YAML(whole(r))
			if err != nil { // JSON is valid YAML
				text = append(whole(r), '\n')
			}
			return append(append(dst, "---\n"...), text...)
		}
	case stdout.JSON:
		return func(dst []byte, r *event.Record) []byte {
			var line bytes.Buffer
			if err := json.Compact(&line, whole(r)); err != nil {
				return dst
			}
			return append(append(dst, line.Bytes()...), '\n')
		}
	}
	return stdout.Line(color)
}

// appendName appends the object of an event in the form that kubectl and `bridge history` accept. It appends nothing for an event without
// one: about a collection, or a request for several objects.
func appendName(dst []byte, r *event.Record) []byte {
	e := r.Event
	if e.Name == "" {
		return dst
	}
	name := e.Collection.ResourceID() + "/" + e.Name
	if e.Namespace != "" {
		name += " -n " + e.Namespace
	}
	return append(append(dst, terminal.Legible(name)...), '\n')
}

// shownRecord is a record with everything that the bus would store.
type shownRecord struct {
	Sink    string            `json:"sink"`
	Topic   string            `json:"topic,omitempty"`
	Subject string            `json:"subject,omitempty"`
	Key     string            `json:"key,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Tombstone: a null value with the same key follows.
	Tombstone bool            `json:"tombstone,omitempty"`
	Value     json.RawMessage `json:"value"`
}

// show returns a record of a sink of this kind for printing.
func (k *sinkKind) show(sink string, r *event.Record) shownRecord {
	s := shownRecord{Sink: sink, Value: r.Value}
	if k.Headers == nil {
		return s
	}
	s.Key, s.Headers = r.Key, map[string]string{}
	for _, h := range k.Headers(r) {
		s.Headers[h.Name] = h.Value
	}
	if k.Templates.Subject != "" {
		s.Subject, s.Key = r.Route, ""
		return s
	}
	s.Topic, s.Tombstone = r.Route, k.Tombstones && kafka.Buries(r)
	return s
}

// wholeRecord returns the function that encodes a sink's record for the formats json and yaml.
func (k *sinkKind) wholeRecord(sink string) func(*event.Record) []byte {
	return func(r *event.Record) []byte {
		text, err := json.Marshal(k.show(sink, r))
		if err != nil { // a value that is no JSON
			return r.Value
		}
		return text
	}
}

// lineOf returns the function that formats a sink's record as a line for people, with its topic or subject.
func (k *sinkKind) lineOf(sink string, color bool) func([]byte, *event.Record) []byte {
	line := stdout.Line(color)
	return func(dst []byte, r *event.Record) []byte {
		s := k.show(sink, r)
		text := bytes.TrimSuffix(line(nil, r), []byte("\n"))
		to := []string{"-> " + s.Sink}
		for _, part := range []string{s.Topic, s.Subject, s.Key} {
			if part != "" {
				to = append(to, terminal.Legible(part))
			}
		}
		return fmt.Appendf(dst, "%s  %s\n", text, strings.Join(to, " "))
	}
}
