package history

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/shape/patch"
)

// Diff returns the unified diff of two objects, written as YAML without their resourceVersion
// and managedFields. nil stands for an object that does not exist.
func Diff(before, after []byte) (string, error) {
	a, err := lines(before)
	if err != nil {
		return "", err
	}
	b, err := lines(after)
	if err != nil {
		return "", err
	}
	return compareLines(a, b).unified(a, b), nil
}

func lines(object []byte) ([]string, error) {
	if object == nil {
		return nil, nil
	}
	v, err := parse(object)
	if err != nil {
		return nil, err
	}
	again, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	text, err := YAML(again)
	if err != nil {
		return nil, err
	}
	return slices.Collect(strings.Lines(string(text))), nil
}

// parse decodes an object and removes the fields that differ after every write.
func parse(object []byte) (map[string]any, error) {
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(string(object)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if meta, ok := v["metadata"].(map[string]any); ok {
		delete(meta, "resourceVersion")
		delete(meta, "managedFields")
	}
	return v, nil
}

// Paths returns JSON pointers to the fields in which two objects differ, except
// resourceVersion and managedFields.
func Paths(before, after []byte) ([]string, error) {
	maker := patch.Maker{WithoutManagedFields: true}
	text, err := maker.Append(nil, before, after)
	if err != nil {
		return nil, err
	}
	var ops []struct{ Path, From string }
	if err := json.Unmarshal(text, &ops); err != nil {
		return nil, err
	}
	paths := []string{}
	for _, op := range ops {
		if op.Path != "/metadata/resourceVersion" {
			paths = append(paths, op.Path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}
