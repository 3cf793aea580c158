package bridge

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/internal/buffer"
	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/operate/leader"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// BufferSpec describes the disk buffer.
type BufferSpec struct {
	// Open opens the spool. sealed says that it encrypts what it writes: otherwise no collection with values to hide is
	// buffered. The bridge closes the spool.
	Open   func(context.Context) (s *spool.Spool, sealed bool, err error)
	MaxAge time.Duration // 0: frames of any age are kept
	// Note is a [leader.Note] where the leader lists its recordings, so that standbys record the same. It needs an
	// Elector. nil: only a leader records.
	Note buffer.Note
}

// openBuffer is an open disk buffer. The zero value has none.
type openBuffer struct {
	*buffer.Buffer
	failed string           // why there is none, although it is configured
	shared *buffer.Exchange // with the other replicas; nil: standbys do not buffer
}

// openBuffer opens the disk buffer of the cluster uid, and lets it run until the returned function is called.
func (b *Bridge) openBuffer(ctx context.Context, uid string) (o openBuffer, end func() error, err error) {
	if b.o.Buffer == nil {
		return o, func() error { return nil }, nil
	}
	files, sealed, err := b.o.Buffer.Open(ctx)
	if errors.Is(err, spool.ErrUnusable) { // events are published without it, too
		b.o.Log.Error("disk buffer is not used, because its disk fails: outages cost what they cost without it; repair the disk, or delete the directory, and restart", zap.Error(err))
		return openBuffer{failed: err.Error()}, func() error { return nil }, nil
	}
	if err != nil {
		return o, nil, &planning.EnvironmentError{Err: err}
	}
	var sinks []string
	for i := range b.o.Sinks {
		sinks = append(sinks, b.o.Sinks[i].Sink)
	}
	o.Buffer = buffer.New(buffer.Options{
		Cluster: uid, Sealed: sealed, Spool: files, Client: b.o.Client, Slots: func() source.Slots { return b.lists.Slots() },
		MaxAge: b.o.Buffer.MaxAge, Sinks: sinks, Log: b.o.Log,
	})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var run sync.WaitGroup
	o.Load(running)
	run.Go(func() { o.Run(running) })
	return o, func() error {
		stop()
		run.Wait()
		return files.Close()
	}, nil
}

// status returns the state of the buffer; nil: none is configured.
func (o *openBuffer) status() *status.Buffer {
	if o.Buffer == nil && o.failed == "" {
		return nil
	}
	if o.Buffer == nil {
		return &status.Buffer{Error: o.failed}
	}
	s := o.State()
	out := &status.Buffer{
		Bytes: o.Spool.Bytes(), MaxBytes: o.Spool.MaxBytes(), Targets: s.Targets, Ended: s.Ended, Aged: s.Aged,
		Failed: s.Failed, Frames: s.Frames,
	}
	if o.shared != nil {
		out.Unlisted, out.Problem = o.shared.Status()
	}
	return out
}

// bufferWhileStandby is Run with a disk buffer that is also open while this process is a standby.
func (b *Bridge) bufferWhileStandby(stop context.Context, uid string) error {
	disk, closeBuffer, err := b.openBuffer(stop, uid)
	if err != nil {
		return err
	}
	defer b.setBuffer(openBuffer{})
	lead := func(held context.Context) error { return b.deliver(held, stop, uid, disk) }
	if disk.Buffer == nil { // its disk fails
		b.setBuffer(disk)
		return b.o.Elector.Run(stop, lead)
	}
	x := buffer.NewExchange(buffer.ExchangeOptions{
		Buffer: disk.Buffer, Note: b.o.Buffer.Note, Limit: leader.MaxNote, Tried: b.exchanged, Log: b.o.Log,
		Election: func() (self, leader string) {
			s := b.o.Elector.Status()
			return s.Identity, s.Holder
		},
	})
	disk.shared = x
	b.setBuffer(disk)
	ctx, end := context.WithCancel(stop)
	var running sync.WaitGroup
	running.Go(func() { x.Run(ctx) })
	err = b.o.Elector.Run(stop, func(held context.Context) error {
		x.Lead(held)
		defer x.Stand()
		return lead(held)
	})
	end()
	running.Wait()
	return errors.Join(err, closeBuffer())
}

// exchanged logs that the list of recordings was read or written, or why not.
func (b *Bridge) exchanged(verb string, err error) {
	const key = "the list of recordings for standbys"
	if err == nil {
		b.outage.reminder.works(key)
		return
	}
	f := failure{message: verb + " of the list of recordings failed, trying again; after a failover during an outage of a bus a gap may follow", err: err}
	if apierrors.IsForbidden(err) {
		f.advice = "let the bridge's account create ConfigMaps, and get and update this one: see `bridge rbac`"
	}
	b.outage.reminder.failed(key, f)
}
