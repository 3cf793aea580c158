package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"
)

var (
	// ErrNotEvent is returned for bytes that are not a whole event of version 1:
	// not JSON, no CloudEvent, or one that lacks what the contract promises.
	ErrNotEvent = errors.New("not a kubebridge event")
	// ErrUnknownType is returned for a CloudEvent of a type, or of a version of a
	// type, that this version does not know. Skipping it is usual.
	ErrUnknownType = errors.New("unknown event type")
	// ErrNoObject is returned for an object asked of an event about a collection.
	ErrNoObject = errors.New("the event holds no object")
	// ErrOtherKind is returned for an object asked for as another kind than it is.
	ErrOtherKind = errors.New("the object is of another kind")
)

// Received is an event as a consumer has it: the attributes and data of one
// CloudEvent that the bridge wrote. docs/events.md is the contract. What an event
// does not have is the zero value.
type Received struct {
	Type       Type
	ID         string
	Time       time.Time // when the bridge saw it
	Cluster    string    // the configured name
	ClusterUID string
	Collection string // see [ParseCollection]
	Group      string // "" is the core group
	Resource   string // plural
	Origin     Origin
	Epoch      uint64 // never 0: the first is 1

	// Namespace is the object's; of a collection event, the one that the
	// collection is restricted to.
	Namespace string

	// Run and Incarnation are those of the collection. Of a deletion, Run and ResourceVersion are
	// those of the publication that it ends.
	Run         uint64
	Incarnation uint64
	Entry       string // the configured name of the collection's entry; "": it has none

	// ResourceVersion is the object's. Of a synced event, the collection is complete up to it; of a
	// gap, it was complete up to it before. Compare it, with Epoch, within one resource only.
	ResourceVersion string
	// DeletionVersion, of a deletion: its resourceVersion, or that of the list that proved it.
	DeletionVersion string

	// Of the object. Empty in an event about a collection, see
	// [Type.OfCollection].
	APIVersion string
	Kind       string
	Name       string
	UID        string
	Object     []byte      // JSON, see [Received.Into]
	BodyKnown  bool        // false: Object has no more than the identity
	Truncated  *Truncation // not nil: Object was cut down
	Reason     string      // of Deleted: "left" if it exists and is not selected, "unknown", or "" if it is gone

	// Of a Modified, if the bridge is configured to publish them and knows them. Patch leads
	// from the body at resourceVersion Base, which was published last, to Object; Before is
	// that body. ChangedBy says by whom, also of an Added. They are JSON.
	Before    []byte
	Patch     []byte
	Base      string
	ChangedBy []byte
	// LeftOut names members of data that the object was too costly for, such as "changedby".
	LeftOut []string

	// DeadLetter is not nil on an event of the dead letters: the bus did not take
	// it where it belongs, and Object may be cut down or not known.
	DeadLetter *DeadLetter

	// Report is the body of an event about a collection, and Plan what its attributes say of the
	// plan. Both are nil in an event about an object.
	Report *Report
	Plan   *Plan

	// Data is the whole data member, for what has no field here.
	Data []byte
}

// received is the event on the wire (CloudEvents JSON format, section 3).
type received struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Type            string          `json:"type"`
	Time            time.Time       `json:"time"`
	Cluster         string          `json:"cluster"`
	ClusterUID      string          `json:"clusteruid"`
	Collection      string          `json:"collection"`
	Group           string          `json:"group"`
	Resource        string          `json:"resource"`
	Origin          Origin          `json:"origin"`
	Epoch           string          `json:"epoch"`
	APIVersion      string          `json:"apiversion"`
	Kind            string          `json:"kind"`
	Namespace       string          `json:"namespace"`
	Name            string          `json:"name"`
	UID             string          `json:"uid"`
	ResourceVersion string          `json:"resourceversion"`
	Run             string          `json:"run"`
	Incarnation     string          `json:"incarnation"`
	DeletionVersion string          `json:"deletionversion"`
	Entry           string          `json:"entry"`
	Plan            string          `json:"plan"`
	PlanDigest      string          `json:"plandigest"`
	Edit            string          `json:"edit"`
	Birth           string          `json:"birth"`
	DeadReason      string          `json:"deadletterreason"`
	DeadRoute       string          `json:"deadletterroute"`
	DeadSize        string          `json:"deadlettersize"`
	DeadLimit       string          `json:"deadletterlimit"`
	Data            json.RawMessage `json:"data"`
}

type receivedData struct {
	Object    json.RawMessage `json:"object"`
	BodyKnown *bool           `json:"bodyknown"`
	Reason    string          `json:"reason"`
	Truncated *Truncation     `json:"truncated"`
	Before    json.RawMessage `json:"before"`
	Patch     json.RawMessage `json:"patch"`
	Base      string          `json:"base"`
	ChangedBy json.RawMessage `json:"changedby"`
	LeftOut   []string        `json:"leftout"`
}

// Parse reads one message's value: a structured CloudEvent as the bridge writes
// it. Attributes and members that it does not know are allowed: version 1 may
// grow. Errors wrap [ErrNotEvent] or [ErrUnknownType]. The result keeps nothing of
// value.
func Parse(value []byte) (*Received, error) {
	var w received
	if err := kjson.UnmarshalCaseSensitivePreserveInts(value, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEvent, err)
	}
	if w.SpecVersion != "1.0" {
		return nil, fmt.Errorf("%w: specversion is %q, want 1.0 (is this a structured CloudEvent?)", ErrNotEvent, w.SpecVersion)
	}
	typ, ok := parseType(w.Type)
	if !ok {
		return nil, fmt.Errorf("event %q: %w %q: known are those of version 1, such as %q", w.ID, ErrUnknownType, w.Type, Added.CloudEvent())
	}
	e := &Received{
		Type: typ, ID: w.ID, Time: w.Time, Cluster: w.Cluster, ClusterUID: w.ClusterUID,
		Collection: w.Collection, Group: w.Group, Resource: w.Resource, Origin: w.Origin, Epoch: 1,
		Namespace: w.Namespace, ResourceVersion: w.ResourceVersion,
		APIVersion: w.APIVersion, Kind: w.Kind, Name: w.Name, UID: w.UID, Data: w.Data,
	}
	if w.Epoch != "" {
		var err error
		if e.Epoch, err = strconv.ParseUint(w.Epoch, 10, 64); err != nil || e.Epoch == 0 {
			return nil, fmt.Errorf("event %q: %w: epoch is %q, want a number from 1", w.ID, ErrNotEvent, w.Epoch)
		}
	}
	if err := e.parseNumbers(&w); err != nil {
		return nil, fmt.Errorf("event %q: %w: %w", w.ID, ErrNotEvent, err)
	}
	if w.DeadReason != "" {
		e.DeadLetter = &DeadLetter{Reason: w.DeadReason, Route: w.DeadRoute}
		e.DeadLetter.Size, _ = strconv.Atoi(w.DeadSize) // absent: 0
		e.DeadLetter.Limit, _ = strconv.Atoi(w.DeadLimit)
	}
	if err := e.parseData(); err != nil {
		return nil, fmt.Errorf("event %q: %w: %w", w.ID, ErrNotEvent, err)
	}
	return e, nil
}

// parseNumbers reads the numbers of the collection and of the plan.
func (e *Received) parseNumbers(w *received) error {
	e.DeletionVersion, e.Entry = w.DeletionVersion, w.Entry
	type number struct {
		name, text string
		to         *uint64
	}
	numbers := []number{{"run", w.Run, &e.Run}, {"incarnation", w.Incarnation, &e.Incarnation}}
	if e.Type.OfCollection() {
		e.Plan = &Plan{Digest: w.PlanDigest}
		numbers = append(numbers, []number{{"plan", w.Plan, &e.Plan.Number}, {"edit", w.Edit, &e.Plan.Edit}, {"birth", w.Birth, &e.Plan.Birth}}...)
	}
	for _, n := range numbers {
		var err error
		if *n.to, err = strconv.ParseUint(n.text, 10, 64); err != nil || *n.to == 0 {
			return fmt.Errorf("%s is %q, want a number from 1", n.name, n.text)
		}
	}
	return nil
}

func parseType(name string) (Type, bool) {
	for t := Added; t <= Closed; t++ {
		if t.CloudEvent() == name {
			return t, true
		}
	}
	return 0, false
}

// parseData reads data, and sees that nothing is absent that a consumer relies on.
func (e *Received) parseData() error {
	required := []Attribute{
		{"id", e.ID},
		{"cluster", e.Cluster},
		{"clusteruid", e.ClusterUID},
		{"collection", e.Collection},
		{"resource", e.Resource},
		{"origin", string(e.Origin)},
		{"data", string(e.Data)},
	}
	if !e.Type.OfCollection() {
		required = append(required, []Attribute{
			{"apiversion", e.APIVersion}, {"kind", e.Kind}, {"name", e.Name}, {"uid", e.UID},
		}...)
	}
	for _, a := range required {
		if a.Value == "" {
			return fmt.Errorf("it has no %s", a.Name)
		}
	}
	if e.Plan != nil && e.Plan.Digest == "" {
		return errors.New("it has no plandigest")
	}
	if e.Time.IsZero() {
		return errors.New("it has no time")
	}
	if e.Type.OfCollection() {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(e.Data, &e.Report); err != nil {
			return fmt.Errorf("data: %w", err)
		}
		if e.Report == nil || e.Report.Reason == "" {
			return errors.New("data has no reason")
		}
		return nil
	}
	var d receivedData
	if err := kjson.UnmarshalCaseSensitivePreserveInts(e.Data, &d); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	if len(d.Object) == 0 || d.Object[0] != '{' {
		return errors.New("data has no object")
	}
	e.Object, e.Reason, e.Truncated = d.Object, d.Reason, d.Truncated
	e.Before, e.Patch, e.Base, e.ChangedBy, e.LeftOut = d.Before, d.Patch, d.Base, d.ChangedBy, d.LeftOut
	e.BodyKnown = d.BodyKnown == nil || *d.BodyKnown
	return nil
}

// Into decodes the object into obj, a pointer: to a typed object (*corev1.Pod), to
// *unstructured.Unstructured, which takes every kind, or to any struct or map that
// encoding/json could fill. What obj held before is gone; an error leaves it as it
// was. apiVersion and kind are set. Where BodyKnown is false or Truncated is set,
// obj has no more than Object has.
//
// A typed object must be of the event's kind, else the error is [ErrOtherKind].
// The Go type's name stands for its kind, and for the types of k8s.io/api their
// package for group and version. Of other types the version is not known here:
// where two versions of a type are in use, source.RestoreGVK, given a scheme and
// the decoded object, checks that it is of the type's own. An event about a
// collection gives [ErrNoObject].
func (e *Received) Into(obj any) error {
	what := e.subject()
	if e.Type.OfCollection() {
		return fmt.Errorf("decode %s of event %q: %w", what, e.ID, ErrNoObject)
	}
	to := reflect.ValueOf(obj)
	if to.Kind() != reflect.Pointer || to.IsNil() {
		return fmt.Errorf("decode %s of event %q: into a %T, want a pointer", what, e.ID, obj)
	}
	if !e.fits(to.Type().Elem()) {
		return fmt.Errorf("decode %s of event %q: %w: it does not go into a %T", what, e.ID, ErrOtherKind, obj)
	}
	fresh := reflect.New(to.Type().Elem())
	if err := kjson.UnmarshalCaseSensitivePreserveInts(e.Object, fresh.Interface()); err != nil {
		return fmt.Errorf("decode %s of event %q: into a %T: %w", what, e.ID, obj, err)
	}
	to.Elem().Set(fresh.Elem())
	return nil
}

// subject names what the event is about, for errors.
func (e *Received) subject() string {
	if e.Type.OfCollection() {
		return e.Type.String() + " of collection " + e.Collection
	}
	name := e.Name
	if e.Namespace != "" {
		name = e.Namespace + "/" + name
	}
	return e.APIVersion + " " + e.Kind + " " + name
}

const (
	metaPackage = "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiPackages = "k8s.io/api/" // then group and version
)

// fits reports whether the event's object may be a t.
func (e *Received) fits(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return true
	}
	f, ok := t.FieldByName("TypeMeta")
	if !ok || !f.Anonymous || f.Type.PkgPath() != metaPackage {
		return true // no Kubernetes type
	}
	if t.PkgPath() == metaPackage && t.Name() == "PartialObjectMetadata" {
		return true // of every kind
	}
	if t.Name() != "" && t.Name() != e.Kind {
		return false
	}
	api, ok := strings.CutPrefix(t.PkgPath(), apiPackages)
	if !ok {
		return true
	}
	dir, version, _ := strings.Cut(api, "/")
	group, ofEvent, ok := strings.Cut(e.APIVersion, "/")
	if !ok {
		group, ofEvent = "core", e.APIVersion
	}
	label, _, _ := strings.Cut(group, ".")
	if group == "internal.apiserver.k8s.io" {
		label = "apiserverinternal"
	}
	return label == dir && ofEvent == version
}
