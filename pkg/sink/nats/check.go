package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

const (
	// smallPayload is what a message should be able to have: servers' default, and less
	// than the largest objects.
	smallPayload = 1 << 20
	// userInfoWait is how long a server may take to answer with a user's permissions. Old servers,
	// and servers that do not allow the request, do not answer.
	userInfoWait = time.Second
)

// Check asks the servers whether the sink could work, and writes nothing. err
// joins the errors, one line each. weak lists warnings about settings that work but are weaker than
// recommended. Check does not start an embedded server, because it may be running. With checkpoint, it also
// checks the [Store] of the sink.
func Check(ctx context.Context, o Options, checkpoint bool) (weak []string, err error) {
	o.Logger = zap.NewNop()
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	var c checker
	switch s := s.(type) {
	case *Sink:
		c = checker{link: &s.link, alone: true, accept: func(found stream) error { _, _, err := s.accept(found); return err }}
		c.subjects = s.missingSubjects(nil)
	case *Shared:
		c = checker{link: &s.link, subjects: s.subjects, accept: func(found stream) error { return s.accept(found.config) }}
	case *Core:
		c = checker{link: &s.link}
	}
	if c.config.Embedded != nil {
		return nil, nil
	}
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	defer c.disconnect()
	if n := c.conn.nc.MaxPayload(); n < smallPayload {
		weak = append(weak, fmt.Sprintf("%s takes messages of %d bytes (max_payload): larger events are cut down; objects have up to 1.5 MB", c.conn.address, n))
	}
	bad := []error{c.checkGrants(ctx, checkpoint)}
	if c.accept != nil {
		more, err := c.checkStream(ctx)
		weak, bad = append(weak, more...), append(bad, err)
	}
	if checkpoint {
		b := newBucket(c.endpoint)
		b.conn = c.conn
		more, err := b.check(ctx)
		weak, bad = append(weak, more...), append(bad, b.wrap("check", err))
	}
	return weak, errors.Join(bad...)
}

// checker checks the stream and permissions of one delivery.
type checker struct {
	*link
	subjects []string // that the stream takes
	alone    bool     // the stream is the pipeline's alone
	accept   func(stream) error
}

func (c *checker) checkStream(ctx context.Context) (weak []string, err error) {
	if err := c.choose(ctx); err != nil {
		return nil, err
	}
	there, err := c.lookUp(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, errors.Join(c.mayCreate(c.subjects, c.alone), c.taken(ctx))
	}
	if err != nil {
		return nil, err
	}
	breaks, found := c.judge(there.config)
	for _, f := range found {
		weak = append(weak, fmt.Sprintf("stream %q: %s", c.name, f))
	}
	var bad []error
	for _, b := range sentences(breaks) {
		bad = append(bad, c.refuse(b, ""))
	}
	return weak, errors.Join(append(bad, c.accept(there))...)
}

// taken returns an error if another stream has the subjects of the stream that is to be created. It
// returns nil if the user may not list streams.
func (c *checker) taken(ctx context.Context) error {
	var bad []error
	for _, subject := range c.subjects {
		var name string
		err := c.conn.do(ctx, func(ctx context.Context) (err error) {
			name, err = c.conn.js.StreamNameBySubject(ctx, subject)
			return err
		})
		if err == nil && name != c.name {
			bad = append(bad, fmt.Errorf("stream %q takes %s, and %q is to be created for that: set nats.subject or nats.stream.name to another", name, subject, c.name))
		}
	}
	return errors.Join(bad...)
}

// checkGrants compares the user's permissions on the server with the permissions that the sink
// needs.
func (c *checker) checkGrants(ctx context.Context, checkpoint bool) error {
	need, err := c.config.Grants(c.id)
	if err != nil {
		return err
	}
	if checkpoint {
		need.Publish = append(need.Publish, c.config.CheckpointGrants(c.id)...)
	}
	var granted userPermissions
	answer := c.conn.do(ctx, func(ctx context.Context) (err error) {
		granted, err = c.conn.permissions(ctx)
		return err
	})
	if answer != nil {
		return nil // it is optional
	}
	var bad []error
	lacking := func(verb string, s *side, need []Grant) {
		if s == nil {
			return
		}
		for _, g := range need {
			allowed := len(s.Allow) == 0 || slices.ContainsFunc(s.Allow, func(p string) bool { return covers(p, g.Subject) })
			if !allowed || slices.ContainsFunc(s.Deny, func(p string) bool { return covers(p, g.Subject) }) {
				bad = append(bad, fmt.Errorf("%s: the user may not %s %q: grant it (`bridge rbac --bus` prints all that is needed): %s", c.conn.address, verb, g.Subject, g.Why))
			}
		}
	}
	lacking("publish to", granted.Publish, need.Publish)
	lacking("subscribe to", granted.Subscribe, need.Subscribe)
	return errors.Join(bad...)
}

// side is what a user may publish to, or subscribe to.
type side struct{ Allow, Deny []string }

type userPermissions struct{ Publish, Subscribe *side }

// permissions returns what the server says of the user. Servers behind leaf nodes answer, too, about the leaf node's user.
func (c *conn) permissions(ctx context.Context) (userPermissions, error) {
	ctx, cancel := context.WithTimeout(ctx, userInfoWait)
	defer cancel()
	inbox := c.nc.NewInbox()
	answers, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return userPermissions{}, err
	}
	defer func() { _ = answers.Unsubscribe() }() // the connection is closed next
	if err := c.nc.PublishRequest(userInfo, inbox, nil); err != nil {
		return userPermissions{}, err
	}
	for {
		var info struct {
			Server struct{ ID string }
			Data   struct{ Permissions userPermissions }
		}
		m, err := answers.NextMsgWithContext(ctx)
		if err == nil && len(m.Data) > 0 {
			err = json.Unmarshal(m.Data, &info)
		}
		if err != nil || info.Server.ID == c.nc.ConnectedServerId() {
			return info.Data.Permissions, err
		}
	}
}
