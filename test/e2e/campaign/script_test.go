package campaign

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// script makes the events that the bridge would publish to one stream. The zero value has made no events.
type script struct {
	runs  uint64
	of    map[string]*scripted
	plan  uint64
	edits map[string]uint64 // by collection of the plan
}

// scripted is the state of one collection of a script.
type scripted struct {
	run, incarnation, syncs uint64
	published               map[string][2]string // run and version by UID
}

// configure makes another plan, in which the given collections have another edit.
func (s *script) configure(edited ...string) {
	if s.edits == nil {
		s.edits, s.of = map[string]uint64{}, map[string]*scripted{}
	}
	s.plan++
	for _, id := range edited {
		s.edits[id] = s.plan
	}
}

// about makes an event about an object. For a deletion, rv is the version of the deletion itself.
func (s *script) about(typ, id, resource, uid, subject, rv string) bus.Message {
	c := s.of[id]
	if c == nil {
		c = &scripted{run: 1, incarnation: 1, published: map[string][2]string{}}
	}
	run := fmt.Sprint(c.run)
	m := s.message(typ, "resource", id, resource)
	if typ == "deleted" {
		m.Attributes["deletionversion"] = rv
		if last, ok := c.published[uid]; ok {
			run, rv = last[0], last[1]
		}
		delete(c.published, uid)
	} else {
		c.published[uid] = [2]string{run, rv}
	}
	maps.Copy(m.Attributes, map[string]string{
		"id": id + ":" + run + ":" + uid + ":" + rv + ":" + typ, "run": run, "incarnation": fmt.Sprint(c.incarnation), "resourceversion": rv,
		"uid": uid, "subject": subject, "namespace": subject[:1], "name": subject[2:], "apiversion": "v1", "kind": "Kind", "origin": "watch",
	})
	return m
}

// collection makes an event about a collection. The first gap, and the first gap after closed, are resets.
func (s *script) collection(typ, id, resource, rv string, data bus.Data) bus.Message {
	c := s.of[id]
	if c == nil {
		c = &scripted{}
		s.of[id] = c
		data.Reset = typ == "gap"
	}
	m := s.message(typ, "collection", id, resource)
	switch typ {
	case "gap":
		s.runs++
		c.run, c.syncs = s.runs, 0
		if data.Reset {
			c.incarnation, c.published = c.run, map[string][2]string{}
		}
	case "synced":
		c.syncs++
		m.Attributes["resourceversion"] = rv
	default:
		delete(s.of, id)
	}
	if data.Reset && data.Reason == "" {
		data.Reason = "reset"
	}
	m.Data = data
	m.Attributes["id"] = fmt.Sprintf("%s:%d:%s", id, c.run, typ)
	if typ == "synced" {
		m.Attributes["id"] = fmt.Sprintf("%s:%d:%d:synced", id, c.run, c.syncs)
	}
	maps.Copy(m.Attributes, map[string]string{
		"run": fmt.Sprint(c.run), "incarnation": fmt.Sprint(c.incarnation), "plan": fmt.Sprint(s.plan), "plandigest": event.PlanDigest(s.edits),
		"edit": fmt.Sprint(cmp.Or(s.edits[id], s.plan)), "birth": "1", "origin": "reconcile",
	})
	return m
}

func (s *script) message(typ, of, id, resource string) bus.Message {
	return bus.Message{Attributes: map[string]string{
		"specversion": "1.0", "source": "/s", "type": "io.kubebridge." + of + "." + typ + ".v1", "time": time.Unix(0, 0).UTC().Format(time.RFC3339Nano),
		"datacontenttype": "application/json", "dataschema": "d", "cluster": "c", "clusteruid": "cu", "collection": id, "resource": resource,
	}}
}

// raw returns the message as it is on the bus.
func raw(m *bus.Message) []byte {
	reason := m.Data.Reason
	if reason == "" {
		reason = "expired"
	}
	data := map[string]any{"object": m.Data.Object}
	if m.OfCollection() {
		data = map[string]any{"reason": reason, "reset": m.Data.Reset, "from": m.Data.From, "to": m.RV()}
	} else if m.Data.Object == nil {
		data["object"] = map[string]any{}
	}
	all := map[string]any{"data": data}
	for name, value := range m.Attributes {
		all[name] = value
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return text
}
