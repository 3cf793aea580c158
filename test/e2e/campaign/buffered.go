package campaign

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/internal/buffer"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
)

const (
	// smallBuffer is the size of a buffer that fills up during an outage: the smallest that the configuration allows.
	smallBuffer = "8Mi"
	// ballastBytes is the size of the objects that fill it. An event with the object, the one before and a patch stays below a bus's limit.
	ballastBytes = 250 << 10
	// mostBallast is the number of these objects in one outage. They have more bytes than a small buffer.
	mostBallast = 60
	// mostFilling is how long the creation of these objects may take on a busy machine.
	mostFilling = 10 * time.Second
)

// buffering is the part of a world that has a disk buffer.
type buffering struct {
	small    bool                       // the buffer fills up during an outage
	ballast  int                        // number of objects that were created to fill it
	mu       sync.Mutex                 // protects recorded
	recorded map[string]map[uint64]kill // UID -> resourceVersion of a change that a killed bridge had on disk, undamaged since
}

// kill is when a bridge was killed. Its zero value is: none was.
type kill struct {
	at    time.Time
	since time.Duration // the faults had begun
}

func (k kill) String() string { return fmt.Sprintf("%.2fs", k.since.Seconds()) }

// has returns when a bridge was killed that had recorded a version of an object.
func (b *buffering) has(uid string, rv uint64) kill {
	if b == nil {
		return kill{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recorded[uid][rv]
}

// hasDeletion is has for a deletion of an object, whose version lies between two others.
func (b *buffering) hasDeletion(uid string, after, before uint64) kill {
	if b == nil {
		return kill{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for rv, killed := range b.recorded[uid] {
		if rv > after && rv < before {
			return killed
		}
	}
	return kill{}
}

// forget forgets what was recorded.
func (b *buffering) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.recorded)
}

// bufferOf returns the configuration of a buffer, which is small in every second seed.
func (w *world) bufferOf() map[string]any {
	w.buffer = &buffering{recorded: map[string]map[uint64]kill{}, small: w.spec.Seed/4%2 == 1 && !w.spec.away}
	return map[string]any{"path": "${env:" + bufferEnv + "}", "maxBytes": w.buffer.size()}
}

// size returns the configured size of the buffer.
func (b *buffering) size() string {
	if b.small {
		return smallBuffer
	}
	return "1Gi"
}

// changes returns the number of changes that killed bridges had recorded.
func (b *buffering) changes() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, versions := range b.recorded {
		n += len(versions)
	}
	return n
}

// harm is what happens to the files of a killed bridge's buffer.
type bufferHarm int

const (
	bufferUnharmed bufferHarm = iota
	segmentDeleted
	endTorn
)

// outage blocks the bus for long enough that the bridge records what it receives. A small buffer then fills up. Before the bus is back,
// the API server may lose its history, and the bridge may be killed and its buffer damaged. The caller holds mu.
func (n *nemesis) outage(ctx context.Context, r *chance, lose, kill bool, harm bufferHarm) error {
	defer n.refuseBus()()
	first := n.current[0]
	if !n.awaitStatus(ctx, first, records) { // another fault has ended the outage, or the API server does not answer
		return nil
	}
	if n.buffer.small {
		if err := n.fillBuffer(ctx, r, first); err != nil {
			return err
		}
	}
	r.wait(ctx, time.Second)
	if lose {
		if err := n.forget(ctx, r); err != nil {
			return err
		}
		r.wait(ctx, 500*time.Millisecond)
	}
	if !kill {
		return nil
	}
	first.Kill()
	if harm != bufferUnharmed { // what was recorded in an earlier outage may not be published yet, and be lost as well
		n.buffer.forget()
		if err := n.damage(r, harm); err != nil {
			return err
		}
	}
	if err := n.readBuffer(); err != nil {
		return fmt.Errorf("read the buffer of a killed bridge: %w", err)
	}
	if err := n.relaunch(0); err != nil {
		return err
	}
	if r.IntN(2) == 0 { // it records again before the bus is back
		r.wait(ctx, 2*time.Second)
	}
	return nil
}

// refuseBus takes the bus away. The function that it returns brings it back.
func (n *nemesis) refuseBus() (back func()) {
	for _, p := range n.bus.proxies {
		p.Refuse()
	}
	return func() {
		for _, p := range n.bus.proxies {
			p.Pass()
		}
	}
}

// records reports whether a collection of the first sink is recorded.
func records(s bridge.Status) bool {
	return len(s.Sinks) > 0 && slices.ContainsFunc(s.Sinks[0].Collections, func(c bridge.Collection) bool { return c.State == "buffered" })
}

// awaitStatus waits for a state of a bridge, for at most eight seconds.
func (n *nemesis) awaitStatus(ctx context.Context, p *bridge.Process, wanted func(bridge.Status) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	return p.Await(ctx, wanted) == nil
}

// fillBuffer creates large objects until the buffer has refused a frame.
func (n *nemesis) fillBuffer(ctx context.Context, r *chance, p *bridge.Process) error {
	t := n.types[r.IntN(2)] // ConfigMaps, or the custom type, whose history is lost
	begun := time.Now()
	for i := 0; i < mostBallast && time.Since(begun) < mostFilling; i++ {
		if err := n.createBallast(ctx, t); err != nil {
			return err
		}
		if s, err := p.Status(ctx); err == nil && s.Buffer != nil && s.Buffer.Ended > 0 || !p.Running() {
			break
		}
	}
	return nil
}

// createBallast creates an object that does not compress.
func (n *nemesis) createBallast(ctx context.Context, t target) error {
	n.load.pause.RLock()
	defer n.load.pause.RUnlock()
	n.buffer.ballast++
	name := fmt.Sprint("ballast-", n.buffer.ballast)
	stamp := make([]byte, ballastBytes*3/4)
	_, _ = rand.Read(stamp) // never fails
	got, err := n.kube.Create(ctx, t.Type, name, body(t, base64.StdEncoding.EncodeToString(stamp)))
	if err != nil && ctx.Err() == nil {
		got, err = find(ctx, n.kube, t, name)
	}
	if err != nil || got == nil {
		return err
	}
	n.load.ledger.wrote(t, got, admin)
	return nil
}

// damage damages the files of a killed bridge's buffer: it deletes one of the segments, or cuts off the end of the one that was written last.
func (n *nemesis) damage(r *chance, harm bufferHarm) error {
	files, err := filepath.Glob(filepath.Join(n.bufferDir(), "*.spool"))
	if err != nil || len(files) == 0 {
		return err
	}
	slices.Sort(files)
	file := files[r.IntN(len(files))]
	if harm == segmentDeleted {
		return os.Remove(file)
	}
	stream, _, _ := strings.Cut(filepath.Base(file), "-")
	for _, other := range files { // segments of a stream sort by their frames
		if strings.HasPrefix(filepath.Base(other), stream) {
			file = other
		}
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return os.Truncate(file, info.Size()-1-r.Int64N(min(info.Size(), 2000)))
}

// readBuffer notes the changes that a killed bridge has recorded for the first sink, and that its next start can read. A recording without
// its first frames may not reach back to the sink's position, so it is left out.
func (n *nemesis) readBuffer() error {
	dir, err := os.MkdirTemp(n.dir, "buffer-copy-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.CopyFS(filepath.Join(dir, "buffer"), os.DirFS(n.bufferDir())); err != nil {
		return err
	}
	key, err := n.bufferKey()
	if err != nil {
		return err
	}
	s, err := spool.Open(filepath.Join(dir, "buffer"), spool.Options{Key: key, Local: true})
	if err != nil {
		return err
	}
	read := map[string]bool{}
	for _, segment := range s.List() {
		if !read[segment.Stream] && segment.Stream != "" && segment.First == 1 {
			read[segment.Stream] = true
			err = errors.Join(err, n.readRecording(s.Stream(segment.Stream), segment.Meta))
		}
	}
	return errors.Join(err, s.Close())
}

// bufferKey returns the key of the buffer, which the bridge derives from the hash key of a checkpoint in files; nil: there is none.
func (n *nemesis) bufferKey() ([]byte, error) {
	if n.pair.shared() {
		return nil, nil
	}
	key, err := os.ReadFile(filepath.Join(n.diskDir(), "checkpoint", "hash.key"))
	if err != nil {
		return nil, err
	}
	return hkdf.Key(sha256.New, key, nil, "kubebridge disk buffer", sha256.Size)
}

// readRecording notes the changes of one recording, up to where frames are missing.
func (n *nemesis) readRecording(stream *spool.Stream, meta []byte) error {
	var of struct {
		Sink   string
		Target source.Target
	}
	if err := json.Unmarshal(meta, &of); err != nil {
		return err
	}
	if of.Sink != n.wanted.Sinks[0].Name {
		return nil
	}
	killed := kill{time.Now(), time.Since(n.begun)}
	reader := stream.Reader(1)
	defer func() { _ = reader.Close() }()
	n.buffer.mu.Lock()
	defer n.buffer.mu.Unlock()
	for {
		raw, err := reader.Next()
		switch {
		case errors.Is(err, spool.ErrKey):
			return err
		case errors.Is(err, io.EOF) || errors.Is(err, spool.ErrBroken) || errors.Is(err, spool.ErrTrimmed):
			return nil
		case err != nil:
			return err
		case len(raw.Data) == 0:
			continue
		}
		f, err := buffer.Decode(raw.Data)
		if err != nil {
			return err
		}
		if f.Object == nil || f.Resume == "" { // it is not a change, or in a list
			continue
		}
		if n.buffer.recorded[f.Object.UID] == nil {
			n.buffer.recorded[f.Object.UID] = map[uint64]kill{}
		}
		n.buffer.recorded[f.Object.UID][number(f.Object.ResourceVersion)] = killed
	}
}

// bufferFaults returns the faults of seeds with a buffer.
func (n *nemesis) bufferFaults(one func(func(context.Context, *chance, int) error) func(context.Context, *chance) error) []fault {
	if n.buffer == nil || len(n.bus.proxies) == 0 { // a bus that is a file has no outages
		return nil
	}
	long := func(kill bool, harm bufferHarm) func(context.Context, *chance) error {
		return one(func(ctx context.Context, r *chance, _ int) error { return n.outage(ctx, r, r.IntN(2) == 0, kill, harm) })
	}
	return []fault{
		{name: "bus away for long", do: long(false, bufferUnharmed), hurts: true},
		{name: "bus away for long, bridge kill -9", do: long(true, bufferUnharmed), hurts: true, often: true},
		{name: "bus away for long, bridge kill -9, segment of the buffer deleted", do: long(true, segmentDeleted), hurts: true},
		{name: "bus away for long, bridge kill -9, end of the buffer torn", do: long(true, endTorn), hurts: true},
	}
}

// mayJudgeBuffer reports whether what was recorded has to be published, also where a gap excuses what was not. That is not so if another
// bridge, with another buffer, continued from the checkpoint, or if a topic, a stream or the etcd was replaced.
func (n *nemesis) mayJudgeBuffer() bool {
	return n.buffer != nil && !n.second && !n.spec.Harm && !slices.ContainsFunc(n.happened, func(h happening) bool {
		return h.name == "stream deleted" || h.name == "topic deleted"
	})
}
