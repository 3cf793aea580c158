package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/kubebridge/internal/base/scan"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
)

var errFound = errors.New("found")

// metadataMember returns the place of a member of an object's metadata in its JSON; 0, 0 if it has none.
func metadataMember(body []byte, member string) (from, to int, err error) {
	var s scan.Scanner
	s.Reset(body)
	err = s.Members(func(name []byte, _ int) error {
		if string(name) != "metadata" {
			return s.Skip()
		}
		return s.Members(func(name []byte, _ int) error {
			if string(name) != member {
				return s.Skip()
			}
			value, err := s.Value()
			if err != nil {
				return err
			}
			to = s.Offset()
			from = to - len(value)
			return errFound
		})
	})
	if err != nil && !errors.Is(err, errFound) {
		return 0, 0, err
	}
	return from, to, nil
}

// labelsOf returns an object's labels, without decoding the rest.
func labelsOf(body []byte) (labels.Set, error) {
	from, to, err := metadataMember(body, "labels")
	if err != nil || from == to {
		return nil, err
	}
	var set labels.Set
	err = json.Unmarshal(body[from:to], &set)
	return set, err
}

// withVersion returns an object's JSON with a resourceVersion: as from the API server, a deletion has its own.
func withVersion(body []byte, version uint64) ([]byte, error) {
	from, to, err := metadataMember(body, "resourceVersion")
	if err != nil {
		return nil, err
	}
	text := strconv.AppendQuote(nil, strconv.FormatUint(version, 10))
	if from != to {
		if string(body[from:to]) == string(text) {
			return body, nil
		}
		return slices.Concat(body[:from], text, body[to:]), nil
	}
	var object, metadata map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(object["metadata"], &metadata); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	metadata["resourceVersion"] = text
	if object["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// selection is whether selectors select an object. All of them must, so the lowest one counts.
type selection int

const (
	notSelected selection = iota
	undecided             // the bus does not have what a selector needs of the object
	selected
)

// selects returns whether a request's selectors select an object. A nil object is not selected.
func (o *options) selects(x *store.Object) (selection, error) {
	if x == nil || o.name != "" && x.Name.Name != o.name || o.namespace != "" && x.Namespace != o.namespace {
		return notSelected, nil
	}
	byLabels, err := o.selectsLabels(x)
	if err != nil || byLabels == notSelected {
		return notSelected, err
	}
	return min(byLabels, o.selectsFields(x)), nil
}

func (o *options) selectsLabels(x *store.Object) (selection, error) {
	if o.labels == nil || o.labels.Empty() {
		return selected, nil
	}
	if x.Extent == store.Identity {
		return undecided, nil
	}
	set, err := labelsOf(x.Body)
	if err != nil {
		return notSelected, fmt.Errorf("read the labels of %s: %w", x.Name.Name, err)
	}
	if !o.labels.Matches(set) {
		return notSelected, nil
	}
	return selected, nil
}

// undecidedError is returned if it is not known whether an object is selected. kind says which answer it leads to.
func undecidedError(kind error, x *store.Object) error {
	why := map[store.Extent]string{
		store.Whole:    "metadataOnly or rules leave out what the selectors need",
		store.Head:     "the bus has only its metadata",
		store.Identity: "the bus has only its name and UID",
	}
	return fmt.Errorf("%w: it is not known whether the selectors select %q: %s", kind, path.Join(x.Namespace, x.Name.Name), why[x.Extent])
}
