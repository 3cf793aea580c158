package encode

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

// Route has the destination, the key and the headers of a collection's records.
type Route struct {
	Topic   *shape.Template // Kafka; nil with Subject nil: the sink has no routes
	Subject *shape.Template // NATS; {entry} is appended to [shape.DefaultSubject] if it applies
	Key     *shape.Template // nil: [shape.DefaultKey], to which {entry} is appended if it applies
	Headers shape.Headers
}

// or returns r, with empty fields taken from other.
func (r Route) or(other Route) Route {
	return Route{
		Topic: cmp.Or(r.Topic, other.Topic), Subject: cmp.Or(r.Subject, other.Subject), Key: cmp.Or(r.Key, other.Key),
		Headers: other.Headers.With(r.Headers),
	}
}

// written is the encoding of a route in [reconcile.Properties]. It has everything that decides the destination of
// a record, so that an incarnation ends on the route on which it began.
type written struct {
	Cluster string `json:"cluster"`
	Topic   string `json:"topic,omitzero"`   // without names in braces
	Subject string `json:"subject,omitzero"` // a template
	Key     string `json:"key,omitzero"`     // a template; of topics
}

// entryText is the value of {entry} in templates: the name of the entry, followed by @ if the entry makes
// one collection per namespace. While an entry changes from one collection of all namespaces to one
// per namespace, two collections hold an object; on a compacted topic they must not share a key.
func entryText(c *event.Collection) string {
	if c.Namespace != "" {
		return c.Entry + "@"
	}
	return c.Entry
}

// write returns the text of a collection's route.
func (r Route) write(v shape.Values) string {
	w := written{Cluster: v.Cluster}
	if r.Subject != nil {
		w.Subject = r.Subject.String()
		if w.Subject == shape.DefaultSubject && v.Entry != "" {
			w.Subject += ".{entry}"
		}
	} else {
		w.Key = shape.DefaultKey
		if r.Key != nil {
			w.Key = r.Key.String()
		}
		if w.Key == shape.DefaultKey && v.Entry != "" {
			w.Key += "/{entry}"
		}
		if r.Topic != nil {
			w.Topic = r.Topic.Topic(v)
		}
	}
	text, _ := json.Marshal(w) // strings always encode
	return string(text)
}

// route is the route of an incarnation's records.
type route struct {
	topic        string
	subject, key *shape.Template // nil: none
	values       shape.Values    // of the collection
}

// parseRoute parses the result of [Route.write]. v are the values of the collection. For any other text
// it returns an empty route.
func parseRoute(text string, v shape.Values) *route {
	var w written
	if json.Unmarshal([]byte(text), &w) != nil {
		w = written{Cluster: v.Cluster}
	}
	v.Cluster = w.Cluster
	r := &route{topic: w.Topic, values: v}
	if t, err := shape.ParseTemplate(w.Subject, shape.SubjectNames); w.Subject != "" && err == nil {
		r.subject = t
	}
	if t, err := shape.ParseTemplate(w.Key, shape.KeyNames); w.Key != "" && err == nil {
		r.key = t
	}
	return r
}

// valuesOf returns the values of an event; v are the values of its collection.
func valuesOf(v shape.Values, ev *event.Event) shape.Values {
	v.Kind, v.Namespace, v.Name, v.UID, v.Type = ev.Kind, ev.Namespace, ev.Name, ev.UID, ev.Type.String()
	return v
}

// destination returns the topic or subject of an event; "": the sink has no routes.
func (r *route) destination(ev *event.Event, v shape.Values, text *event.Text) string {
	var buffer [512]byte
	switch {
	case r.subject == nil:
		return r.topic
	case ev.Type.IsBroadcast():
		v.Namespace = ev.Collection.Namespace
		return r.subject.EntryCollectionSubject(v, ev.CollectionKind())
	default:
		return text.Of(r.subject.AppendSubject(buffer[:0], v))
	}
}

// keyOf returns the key of an object's record.
func (r *route) keyOf(v shape.Values, text *event.Text) string {
	var buffer [512]byte
	if r.key == nil {
		return ""
	}
	return text.Of(r.key.AppendKey(buffer[:0], v))
}

// headers returns the configured headers of an event that has its body.
func (r *rules) headers(to []event.Attribute, ev *event.Event, text *event.Text) []event.Attribute {
	v := valuesOf(r.values, ev)
	v.Version = ev.APIVersion[strings.IndexByte(ev.APIVersion, '/')+1:]
	if ev.Type.IsBroadcast() {
		v.Namespace = ev.Collection.Namespace
	}
	return r.route.Headers.Append(to, v, ev.Object, text)
}
