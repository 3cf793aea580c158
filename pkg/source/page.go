package source

import (
	"errors"
	"strconv"
	"time"

	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

type page struct {
	items     []Object // as the server sent them, within the page's text
	rv        string
	remaining string // the continue token; "" on the last page
	left      *int64 // objects on the following pages, if the server reports it
	bytes     int
	took      time.Duration // since its request
}

// parsePage parses a list. Items may come before or after the list's metadata. body must not
// change while items refer to it.
func (s *scanner) parsePage(body []byte) (page, error) {
	p := page{bytes: len(body)}
	s.Reset(body)
	sawItems := false
	err := s.Members(func(name []byte, _ int) error {
		switch string(name) {
		case "metadata":
			return s.Members(func(name []byte, _ int) error {
				switch string(name) {
				case "resourceVersion":
					return s.str(&p.rv, "")
				case "continue":
					return s.str(&p.remaining, "")
				case "remainingItemCount":
					return s.count(&p.left)
				default:
					return s.Skip()
				}
			})
		case "items":
			sawItems = true
			return s.Elements(func() error {
				o, err := s.object()
				p.items = append(p.items, o)
				return err
			})
		default:
			return s.Skip()
		}
	})
	if err == nil {
		err = s.End()
	}
	switch {
	case err != nil:
		return page{}, err
	case !sawItems:
		return page{}, errors.New("a list without items")
	case !listwatch.Resumable(p.rv):
		return page{}, listwatch.ErrNoVersion
	}
	return p, nil
}

// parseHead parses the beginning of a list, and returns the continue token if the metadata comes
// before the items and is complete.
func (s *scanner) parseHead(head []byte) (token string) {
	s.Reset(head)
	_ = s.Members(func(name []byte, _ int) error { // the head is incomplete, which is an error at its end
		switch string(name) {
		case "metadata":
			var found string
			err := s.Members(func(name []byte, _ int) error {
				if string(name) == "continue" {
					return s.str(&found, "")
				}
				return s.Skip()
			})
			if err == nil {
				token = found
			}
			return err
		case "items":
			return errPastHead
		default:
			return s.Skip()
		}
	})
	return token
}

var errPastHead = errors.New("the items begin")

// count reads a number that may be absent or null.
func (s *scanner) count(into **int64) error {
	value, err := s.Value()
	if err != nil {
		return err
	}
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		*into = &n
	}
	return nil
}
