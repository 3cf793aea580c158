package event

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"
)

var (
	// ErrNotEvent is returned for bytes that are not a complete event of version 1:
	// not JSON, no CloudEvent, or an event that lacks a required attribute.
	ErrNotEvent = errors.New("not a kubebridge event")
	// ErrUnknownType is returned for a CloudEvent of a type, or of a version of a
	// type, that this version does not know. Consumers usually skip it.
	ErrUnknownType = errors.New("unknown event type")
	// ErrNoObject is returned if the object of an event about a collection is requested.
	ErrNoObject = errors.New("the event holds no object")
	// ErrOtherKind is returned if an object is decoded into a type of another kind.
	ErrOtherKind = errors.New("the object is of another kind")
)

// Received is an event as a consumer reads it: the attributes and data of one
// CloudEvent that the bridge wrote. docs/events.md is the contract. Fields that an event
// does not have are zero.
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
	Epoch      uint64 // never 0: the first epoch is 1

	// Namespace is the object's namespace. In a collection event it is the namespace that the
	// collection is restricted to.
	Namespace string

	// Run and Incarnation are those of the collection. In a deletion, Run and ResourceVersion are
	// those of the publication that it ends.
	Run         uint64
	Incarnation uint64
	Entry       string // the configured name of the collection's entry; "": it has none

	// ResourceVersion is the object's. In a synced event it is the version up to which the collection is complete; in a
	// gap, the version up to which it was complete before. Compare it, together with Epoch, within one resource only.
	ResourceVersion string
	// DeletionVersion is set in a deletion: the resourceVersion of the deletion, or of the list that proved it.
	DeletionVersion string

	// These describe the object. They are empty in an event about a collection, see
	// [Type.OfCollection].
	APIVersion string
	Kind       string
	Name       string
	UID        string
	Object     []byte      // JSON, see [Received.Into]
	BodyKnown  bool        // false: Object has only the identity
	Truncated  *Truncation // not nil: Object was cut down
	Reason     string      // in Deleted: "left" if it exists and is not selected, "unknown", or "" if it is gone

	// These are set in Modified events, if the bridge is configured to publish them and knows them; ChangedBy also in
	// Added. Before is the body that was published last, at resourceVersion Base. Patch leads from it to
	// Object. ChangedBy lists the field managers that changed the object. All but Base are JSON.
	Before    []byte
	Patch     []byte
	Base      string
	ChangedBy []byte
	// LeftOut names members of data that were too costly to compute for this object, such as "changedby".
	LeftOut []string

	// Actor is the request that made the change, if the bridge is configured to wait for it and knows it exactly: see
	// docs/attribution.md. Then no event of type [Attributed] follows.
	Actor *Request

	// DeadLetter is set on a dead letter: the bus rejected the event on its own
	// route, and Object may be truncated or unknown.
	DeadLetter *DeadLetter

	// Report is the body of an event about a collection. Plan has its attributes about the
	// plan. Both are nil in an event about an object.
	Report *Report
	Plan   *Plan

	// Attribution is the data of an event of type [Attributed]; nil for others. Object is nil there.
	Attribution *Attribution

	// Denial is the data of an event of type [Denied]; nil for others. Kind, UID and Object are empty there, and Name and Namespace if the
	// request has none.
	Denial *Denial

	// Loss is the data of an event of type [Lost]; nil for others. There is no object.
	Loss *Loss

	// Data is the whole data member, for values that have no field here.
	Data []byte
}

// received is the event on the wire (CloudEvents JSON format, section 3).
type received struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Type            string    `json:"type"`
	Time            time.Time `json:"time"`
	Cluster         string    `json:"cluster"`
	ClusterUID      string    `json:"clusteruid"`
	Collection      string    `json:"collection"`
	Group           string    `json:"group"`
	Resource        string    `json:"resource"`
	Origin          Origin    `json:"origin"`
	Epoch           string    `json:"epoch"`
	APIVersion      string    `json:"apiversion"`
	Kind            string    `json:"kind"`
	Namespace       string    `json:"namespace"`
	Name            string    `json:"name"`
	UID             string    `json:"uid"`
	ResourceVersion string    `json:"resourceversion"`
	Run             string    `json:"run"`
	Incarnation     string    `json:"incarnation"`
	DeletionVersion string    `json:"deletionversion"`
	Entry           string    `json:"entry"`
	Plan            string    `json:"plan"`
	PlanDigest      string    `json:"plandigest"`
	Edit            string    `json:"edit"`
	Birth           string    `json:"birth"`
	DeadReason      string    `json:"deadletterreason"`
	DeadRoute       string    `json:"deadletterroute"`
	DeadSize        string    `json:"deadlettersize"`
	DeadLimit       string    `json:"deadletterlimit"`
	Data            []byte    `json:"-"` // the member data
}

// receivedData is the data of an event about an object, without the members that are kept as they are: see bodies.
type receivedData struct {
	BodyKnown *bool       `json:"bodyknown"`
	Reason    string      `json:"reason"`
	Truncated *Truncation `json:"truncated"`
	Base      string      `json:"base"`
	LeftOut   []string    `json:"leftout"`
	Actor     *Request    `json:"actor"`
}

var bodies = []string{"object", "before", "patch", "changedby"}

// MaxAhead is how far the numbers and the time of an event may be ahead of its reader's clock: see [Received.CheckClock].
const MaxAhead = 24 * time.Hour

// CheckClock returns an error, which wraps [ErrNotEvent], if the run, incarnation, birth, plan, edit or time of an event is more than [MaxAhead] later than
// now. The numbers are milliseconds since 1970 when they begin. Readers ignore such an event: they would ignore all later ones with lower numbers.
func (e *Received) CheckClock(now time.Time) error {
	p := e.Plan
	if p == nil {
		p = &Plan{}
	}
	limit, what := now.Add(MaxAhead), ""
	names := [...]string{"run", "incarnation", "birth", "plan", "edit"}
	for i, n := range [...]uint64{e.Run, e.Incarnation, p.Birth, p.Number, p.Edit} {
		if n > uint64(limit.UnixMilli()) {
			what = fmt.Sprintf("%s %d", names[i], n)
		}
	}
	if e.Time.After(limit) {
		what = "time " + FormatTime(e.Time)
	}
	if what == "" {
		return nil
	}
	return fmt.Errorf("event %q: %w: its %s is more than a day ahead of this clock, %s: set the clock that is wrong, or find who has written the message",
		e.ID, ErrNotEvent, what, now.UTC().Format(time.RFC3339))
}

// Parse reads one message's value: a structured CloudEvent as the bridge writes
// it. It ignores unknown attributes and members, because version 1 may
// get more of them. Errors wrap [ErrNotEvent] or [ErrUnknownType]. The result does not refer to
// value.
func Parse(value []byte) (*Received, error) {
	var w received
	data, attributes, err := split(value, "data")
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(attributes, &w)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEvent, err)
	}
	w.Data = bytes.Clone(data[0])
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

// parseNumbers reads the attributes of the collection and of the plan that are numbers.
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
	for t := Added; t <= Lost; t++ {
		if t.CloudEvent() == name {
			return t, true
		}
	}
	return 0, false
}

// parseData reads data, and checks that the event has everything that consumers rely on.
func (e *Received) parseData() error {
	if err := e.checkAttributes(); err != nil {
		return err
	}
	var to any
	switch {
	case e.Type.OfCollection():
		to = &e.Report
	case e.Type == Attributed:
		to = &e.Attribution
	case e.Type == Lost:
		to = &e.Loss
	case e.Type == Denied:
		to = &e.Denial
	default:
		return e.parseObject()
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(e.Data, to); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	switch {
	case e.Type.OfCollection() && (e.Report == nil || e.Report.Reason == ""):
		return errors.New("data has no reason")
	case e.Type == Attributed && (e.Attribution == nil || e.Attribution.Explains == ""):
		return errors.New("data has no explains")
	case e.Type == Lost && (e.Loss == nil || e.Loss.Until == ""):
		return errors.New("data has no until")
	case e.Type == Denied && (e.Denial == nil || e.Denial.Request.Verb == ""):
		return errors.New("data has no request")
	}
	return nil
}

// checkAttributes checks that the attributes are there that every event of its type has.
func (e *Received) checkAttributes() error {
	required := []Attribute{
		{"id", e.ID},
		{"cluster", e.Cluster},
		{"clusteruid", e.ClusterUID},
		{"collection", e.Collection},
		{"resource", e.Resource},
		{"origin", string(e.Origin)},
		{"data", string(e.Data)},
	}
	if !e.Type.OfCollection() && e.Type != Denied && e.Type != Lost {
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
	return nil
}

// parseObject reads the data of an event about an object.
func (e *Received) parseObject() error {
	var d receivedData
	values, rest, err := split(e.Data, bodies...)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(rest, &d)
	}
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	if len(values[0]) == 0 || values[0][0] != '{' {
		return errors.New("data has no object")
	}
	for i, to := range []*[]byte{&e.Object, &e.Before, &e.Patch, &e.ChangedBy} {
		*to = bytes.Clone(values[i])
	}
	e.Reason, e.Truncated, e.Base, e.LeftOut = d.Reason, d.Truncated, d.Base, d.LeftOut
	e.Actor = d.Actor
	e.BodyKnown = d.BodyKnown == nil || *d.BodyKnown
	return nil
}

// Into decodes the object into obj, a pointer to a typed object (*corev1.Pod), to an
// unstructured.Unstructured, which takes every kind, or to any struct or map that
// encoding/json can fill. It replaces the former content of obj; on an error obj stays
// unchanged. apiVersion and kind are set. If BodyKnown is false or Truncated is set,
// obj has only the fields that Object has.
//
// The type of a typed object must match the event's kind, otherwise the error is [ErrOtherKind].
// The Go type's name is compared with the kind and, for types of k8s.io/api, their
// package with group and version. The version of other types is not checked:
// if two versions of a type are in use, clientgo.RestoreGVK, given a scheme and
// the decoded object, checks that the object has the type's version. For an event about a
// collection the error is [ErrNoObject].
func (e *Received) Into(obj any) error {
	what := e.subject()
	if e.Type.OfCollection() || e.Type.OfRequest() {
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

// subject names the object or collection of the event, for errors.
func (e *Received) subject() string {
	if e.Type.IsBroadcast() {
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

// fits reports whether the event's object may be decoded into a t.
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
		return true // it takes every kind
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
