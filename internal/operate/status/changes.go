package status

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Change is one published change of an object. It is part of the API: field names and meanings do not change; fields
// may be added.
type Change struct {
	Time            time.Time `json:"time"` // when the bridge saw it
	Type            string    `json:"type"` // added, modified or deleted
	Namespace       string    `json:"namespace,omitzero"`
	Name            string    `json:"name"`
	UID             string    `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
	Origin          string    `json:"origin"`          // watch or reconcile
	Reason          string    `json:"reason,omitzero"` // "left": it exists and is not selected any more; "unknown": it may exist
	ID              string    `json:"id"`              // the event's id
	// By is the event's changedby, [] if that is not known. Who is the same in words.
	By  json.RawMessage `json:"by"`
	Who string          `json:"-"`
	// Users are lines that say who made the change, by the audit log: "user" and who sent the request; or that this is not certain, and the
	// candidates. None: it is not known, or not yet.
	Users []string `json:"users,omitzero"`
	// Note says what limits the meaning of the change, and why there is no diff; "" if nothing does.
	Note string `json:"note"`
	// Diff is set for modified: the unified diff of the bodies as YAML, or the event's patch with one
	// line for each operation: + adds, - removes, ~ replaces.
	Diff string `json:"diff"`
}

// listing is the body of /api/changes.
type listing struct {
	Sink       string    `json:"sink"`
	Collection string    `json:"collection"`
	At         time.Time `json:"at"`
	Changes    []Change  `json:"changes"` // newest first
}

// ChangesFunc returns the last changes of a sink's collection, newest first. found reports
// whether there is such a collection.
type ChangesFunc func(sink, collection string) (changes []Change, found bool)

// changesLink returns the link to the page of a collection's changes.
func changesLink(prefix, sink, collection string) string {
	return prefix + "changes?" + url.Values{"sink": {sink}, "collection": {collection}}.Encode()
}

func (p *page) linkChanges() {
	for i := range p.Rows {
		p.Rows[i].Changes = changesLink("", p.Rows[i].Sink, p.Rows[i].ID)
	}
}

// addChanges registers handlers for the last changes, as a page and as JSON. If lastChanges is nil, they answer
// that no changes are kept.
func addChanges(mux *http.ServeMux, lastChanges ChangesFunc) error {
	t, err := template.ParseFS(assets, "changes.html")
	if err != nil {
		return fmt.Errorf("parse the page of changes: %w", err)
	}
	serve := func(path, kind string, body func(listing) ([]byte, error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if lastChanges == nil {
				http.Error(w, "no changes are kept: status.history is off", http.StatusNotFound)
				return
			}
			q := r.URL.Query()
			l := listing{Sink: q.Get("sink"), Collection: q.Get("collection"), At: time.Now().UTC()}
			var found bool
			if l.Changes, found = lastChanges(l.Sink, l.Collection); !found {
				http.Error(w, fmt.Sprintf("sink %q has no collection %q now: /api/status says which there are", l.Sink, l.Collection), http.StatusNotFound)
				return
			}
			text, err := body(l)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			send(w, kind, http.StatusOK, text)
		})
	}
	serve("/changes", "text/html; charset=utf-8", func(l listing) ([]byte, error) {
		var page bytes.Buffer
		err := t.Execute(&page, newChangesPage(l))
		return page.Bytes(), err
	})
	serve("/api/changes", "application/json", func(l listing) ([]byte, error) {
		text, err := json.MarshalIndent(l, "", "  ")
		return append(text, '\n'), err
	})
	return nil
}

// changesPage has the values that changes.html shows.
type changesPage struct {
	Sink, Collection, At, JSON string
	Changes                    []changeView
}

type changeView struct {
	Change
	Class, When, Object string
	Lines               []diffLine
}

type diffLine struct{ Class, Text string }

// newChangesPage returns the values that the page shows. Names of users, field managers and RBAC objects may hold any character.
func newChangesPage(l listing) changesPage {
	p := changesPage{Sink: l.Sink, Collection: l.Collection, At: l.At.Format(clock), JSON: changesLink("api/", l.Sink, l.Collection)}
	for _, c := range l.Changes {
		v := changeView{Change: c, Class: "busy", When: c.Time.UTC().Format("2006-01-02 15:04:05.000 UTC"), Object: c.Name}
		if c.Namespace != "" {
			v.Object = c.Namespace + "/" + c.Name
		}
		v.Object, v.Who, v.Note = legible(v.Object), legible(v.Who), legible(v.Note)
		v.Users = nil
		for _, line := range c.Users {
			v.Users = append(v.Users, legible(line))
		}
		switch c.Type {
		case "added":
			v.Class = "ok"
		case "deleted":
			v.Class = "off"
		}
		for line := range strings.Lines(c.Diff) {
			v.Lines = append(v.Lines, diffLine{classOfLine(line), legible(strings.TrimRight(line, "\n"))})
		}
		p.Changes = append(p.Changes, v)
	}
	return p
}

// legible returns a text with escapes in place of the characters that make it look like another one.
func legible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// classOfLine returns the CSS class of a line of a diff.
func classOfLine(line string) string {
	switch line[:min(1, len(line))] {
	case "+":
		return "plus"
	case "-":
		return "minus"
	case "~":
		return "other"
	case "@":
		return "place"
	default:
		return ""
	}
}
