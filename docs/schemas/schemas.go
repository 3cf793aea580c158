// Package schemas holds the published JSON Schemas, as the program prints them.
package schemas

import (
	_ "embed"
	"fmt"
	"strings"
)

var (
	//go:embed config.schema.json
	config string
	//go:embed event-v1.json
	event string
	//go:embed object-v1.json
	object string
	//go:embed collection-v1.json
	collection string
	//go:embed attribution-v1.json
	attribution string
	//go:embed denial-v1.json
	denial string
	//go:embed loss-v1.json
	loss string
)

// Config is the JSON Schema (draft 2020-12) of the configuration file.
func Config() string { return config }

// Event is the JSON Schema (draft 2020-12) of an event, version 1, with those of
// its data in the same document, so that a validator fetches nothing (JSON Schema
// Core, section 9.3, "Compound Documents").
func Event() string {
	within := func(text string) string { // its lines, indented; a JSON string has no line ends
		return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
	}
	return fmt.Sprintf(`{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$ref": "https://kubebridge.io/schemas/event-v1.json",
  "$defs": {
    "event": %s,
    "object": %s,
    "collection": %s,
    "attribution": %s,
    "denial": %s,
    "loss": %s
  }
}
`, within(event), within(object), within(collection), within(attribution), within(denial), within(loss))
}
