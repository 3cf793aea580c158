package audit

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kubebridge/kubebridge/internal/base/scan"
)

const (
	eventKind  = "Event"
	listKind   = "EventList"
	apiVersion = "audit.k8s.io/v1"
)

var (
	errNoEvent = errors.New("it is neither an Event nor an EventList of " + apiVersion)
	errNoItem  = errors.New("an audit event is no object")
)

// Parser reads audit events. It can be used by several goroutines.
type Parser struct{ options Options }

// NewParser returns a parser.
func NewParser(o Options) *Parser { return &Parser{o} }

// List adds the events of an EventList: the body of a request of the API server's webhook backend. An error means that the text is
// no EventList of audit.k8s.io/v1, and nothing is added. An event that does not parse is counted in b, and the others are added.
func (p *Parser) List(body []byte, b *Batch) error {
	before := *b
	r := newReader(p, b)
	r.scan.Reset(body)
	kind, version := "", ""
	var late []byte // items that came before kind and apiVersion
	err := r.scan.Members(func(name []byte, _ int) (err error) {
		switch string(name) {
		case "kind":
			kind, err = r.scan.String(listKind)
		case "apiVersion":
			version, err = r.scan.String(apiVersion)
		case "items":
			if kind == listKind && version == apiVersion {
				return r.scan.Elements(r.item)
			}
			late, err = r.scan.Value()
		default:
			err = r.scan.Skip()
		}
		return err
	})
	if err == nil {
		err = r.scan.End()
	}
	if err == nil {
		err = checkKind(kind, version, listKind)
	}
	if err == nil && late != nil {
		r.scan.Reset(late)
		err = r.scan.Elements(r.item)
	}
	if err != nil {
		*b = before
		return fmt.Errorf("read audit events: %w", err)
	}
	return nil
}

// Lines adds events in JSON Lines: what the API server's log backend writes. Lines without text are left out.
func (p *Parser) Lines(text []byte, b *Batch) {
	r := newReader(p, b)
	for line := range bytes.Lines(text) {
		if line = bytes.Trim(line, scan.WhiteSpace); len(line) > 0 {
			r.document(line)
		}
	}
}

// Message adds the events of one message of a topic: an Event, an EventList, either of them in JSON Lines, or Azure's diagnostics envelope.
func (p *Parser) Message(value []byte, b *Batch) {
	value = bytes.Trim(value, scan.WhiteSpace)
	if bytes.IndexByte(value, '\n') < 0 || isWhole(value) {
		newReader(p, b).document(value)
		return
	}
	p.Lines(value, b)
}

// isWhole reports whether a text is one JSON value.
func isWhole(text []byte) bool {
	var s scan.Scanner
	s.Reset(text)
	return s.Skip() == nil && s.End() == nil
}

func checkKind(kind, version, want string) error {
	if version != apiVersion && (kind == eventKind || kind == listKind) {
		return fmt.Errorf("kind %s has apiVersion %.40q: only %s is read", kind, version, apiVersion)
	}
	if kind != want || version != apiVersion {
		return errNoEvent
	}
	return nil
}

// reader reads texts one after another.
type reader struct {
	parser *Parser
	batch  *Batch
	scan   scan.Scanner
	event  event
	note   func(name []byte, start int) error // of the event
}

func newReader(p *Parser, b *Batch) *reader {
	r := &reader{parser: p, batch: b}
	r.note = r.noteMember
	return r
}

// noteMember notes the value of a member that is used.
func (r *reader) noteMember(name []byte, _ int) error {
	of, used := members[string(name)]
	if !used {
		return r.scan.Skip()
	}
	value, err := r.scan.Value()
	*of(&r.event) = value
	return err
}

// item reads an element of an EventList. Its error is of the whole text.
func (r *reader) item() error {
	if c, err := r.scan.Peek(); err != nil || c != '{' {
		r.batch.Fail(errNoItem)
		return errors.Join(err, r.scan.Skip())
	}
	r.event = event{}
	if err := r.scan.Members(r.note); err != nil {
		return err
	}
	if err := r.event.checkItem(); err != nil {
		r.batch.Fail(err)
		return nil
	}
	r.parser.add(&r.event, r.batch)
	return nil
}

// document reads a text that is an Event, an EventList, or Azure's envelope.
func (r *reader) document(text []byte) {
	kind, err := r.read(text)
	switch {
	case err != nil:
		r.batch.Fail(err)
	case kind == listKind:
		if err := r.parser.List(text, r.batch); err != nil {
			r.batch.Fail(err)
		}
	case kind == "" && r.event.records != nil:
		r.envelopes(r.event.records)
	default:
		r.finish(kind)
	}
}

// read notes the values of a text, and returns its kind.
func (r *reader) read(text []byte) (kind string, err error) {
	r.scan.Reset(text)
	r.event = event{}
	if err := r.scan.Members(r.note); err != nil {
		return "", err
	}
	if err := r.scan.End(); err != nil {
		return "", err
	}
	return r.event.kind.text()
}

// finish adds what read has noted, if it is an Event.
func (r *reader) finish(kind string) {
	version, err := r.event.apiVersion.text()
	if err == nil {
		err = checkKind(kind, version, eventKind)
	}
	if err != nil {
		r.batch.Fail(err)
		return
	}
	r.parser.add(&r.event, r.batch)
}
