package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// stopTimeout bounds a clean stop; a second or two are usual.
	stopTimeout = 3 * time.Minute
	// pauseTimeout bounds how long threads run on after a SIGSTOP; a few milliseconds are usual.
	pauseTimeout = time.Minute
	// askTimeout bounds one request that checks whether a broker is ready.
	askTimeout = 10 * time.Second
)

// Broker is one broker and controller of a cluster, running or not.
type Broker struct {
	cluster                   *Cluster
	id                        int32
	dir                       string
	client, admin, controller string // addresses of its listeners
	proxy                     *Proxy // nil if there is none

	mu     sync.Mutex
	proc   *process // nil if the broker was never started, or was stopped
	paused bool
	dump   string // file into which the running broker writes the classes that it has loaded, if it is stopped; "" for none
}

// ID returns the broker's ID.
func (b *Broker) ID() int32 { return b.id }

// Addr returns the address (host:port) that clients use.
func (b *Broker) Addr() string {
	if b.proxy != nil {
		return b.proxy.Addr()
	}
	return b.client
}

// Proxy returns the proxy between clients and the broker; nil unless Options.Proxy was set.
func (b *Broker) Proxy() *Proxy { return b.proxy }

func (b *Broker) properties() string { return filepath.Join(b.dir, "server.properties") }
func (b *Broker) log() string        { return filepath.Join(b.dir, "broker.log") }
func (b *Broker) data() string       { return filepath.Join(b.dir, "data") }

// java returns a command that runs a class of Kafka, with a small heap that is enough for tests. With the C1 compiler alone the broker starts in
// two thirds of the time, and with an archive of parsed classes (class data sharing) in half of that. A JVM ignores an archive that does not fit.
func (b *Broker) java(class string, args ...string) *exec.Cmd {
	options := []string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS", "-Dorg.slf4j.simpleLogger.showThreadName=false",
		"-cp", filepath.Join(b.cluster.jars, "*"),
	}
	if archive := b.cluster.archive; exists(archive) {
		options = append(options, "-XX:SharedArchiveFile="+archive)
	} else if b.dump != "" {
		options = append(options, "-XX:ArchiveClassesAtExit="+b.dump)
	}
	return exec.Command("java", slices.Concat(options, []string{class}, args)...)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// keepClasses makes the classes that a broker has written when it was stopped the archive of the next ones. Without one, they only start later.
func (b *Broker) keepClasses() {
	if b.dump != "" {
		_ = os.Rename(b.dump, b.cluster.archive)
		b.dump = ""
	}
}

// format formats the data directory of a new broker.
func (b *Broker) format(ctx context.Context) error {
	if from := b.cluster.opts.Data; from != "" {
		return os.CopyFS(b.data(), os.DirFS(from))
	}
	p, err := startProcess(b.java("kafka.tools.StorageTool", "format", "-t", clusterID, "-c", b.properties()), b.log())
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		err = errors.Join(context.Cause(ctx), p.signal(syscall.SIGKILL))
		<-p.done
	}
	if err := errors.Join(err, p.err); err != nil {
		return fmt.Errorf("format the data directory of broker %d: %w", b.id, err)
	}
	return nil
}

// Save copies the broker's data to dir, which must not exist. The broker must be down.
func (b *Broker) Save(dir string) error {
	if b.running() {
		return fmt.Errorf("save the data of broker %d: it is running, stop it first", b.id)
	}
	return os.CopyFS(dir, os.DirFS(b.data()))
}

// Start starts the broker with its data, and returns when clients can write to every partition of which it has a
// replica. It does nothing if the broker runs.
func (b *Broker) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, launchTimeout, fmt.Errorf("not ready after %s", launchTimeout))
	defer cancel()
	if err := b.run(); err != nil {
		return err
	}
	return await(ctx, fmt.Sprintf("broker %d", b.id), func(ctx context.Context) (bool, error) {
		if !b.running() {
			return false, errors.New("it has ended")
		}
		ask, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		return b.ready(ask)
	})
}

func (b *Broker) run() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc != nil && b.proc.running() {
		return nil
	}
	b.dump = ""
	if archive := b.cluster.archive; archive != "" && len(b.cluster.brokers) == 1 && !exists(archive) {
		b.dump = archive + "." + filepath.Base(b.cluster.dir)
	}
	var err error
	b.proc, err = startProcess(b.java("kafka.Kafka", b.properties()), b.log())
	b.paused = false
	return err
}

// ready reports whether the broker accepts connections and is registered, and all partitions of which it has a replica have a leader.
func (b *Broker) ready(ctx context.Context) (bool, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.client)
	if err != nil {
		return false, err
	}
	if err := conn.Close(); err != nil {
		return false, err
	}
	meta, err := b.metadata(ctx)
	if err != nil {
		return false, err
	}
	if !slices.Contains(meta.Brokers.NodeIDs(), b.id) {
		return false, errors.New("it is not registered")
	}
	for _, t := range meta.Topics {
		for _, p := range t.Partitions {
			if p.Leader < 0 && slices.Contains(p.Replicas, b.id) {
				return false, fmt.Errorf("topic %s, partition %d has no leader", t.Topic, p.Partition)
			}
		}
	}
	return true, nil
}

func (b *Broker) running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.proc != nil && b.proc.running()
}

// answers reports whether the broker runs and is not paused.
func (b *Broker) answers() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.proc != nil && b.proc.running() && !b.paused
}

// Stop stops the broker with SIGTERM, so that its leaders move first, and returns when it has ended. It resumes a paused broker and
// does nothing if the broker is down. If it has to kill the broker after three minutes, it returns an error.
func (b *Broker) Stop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == nil {
		return nil
	}
	err := errors.Join(b.proc.signal(syscall.SIGTERM), b.proc.signal(syscall.SIGCONT))
	select {
	case <-b.proc.done:
	case <-time.After(stopTimeout):
		err = errors.Join(err, fmt.Errorf("stop broker %d: still there after %s", b.id, stopTimeout), b.proc.signal(syscall.SIGKILL))
		<-b.proc.done
	}
	if err == nil {
		b.keepClasses()
	}
	b.proc, b.paused = nil, false
	return err
}

// end ends the broker for good: if its classes are wanted, with a clean stop.
func (b *Broker) end() error {
	b.mu.Lock()
	stop := b.dump != "" && b.proc != nil && b.proc.running() && !b.paused
	b.mu.Unlock()
	if stop {
		return b.Stop()
	}
	return b.Kill()
}

// Kill kills the broker (SIGKILL), paused or not, and returns when it has ended. Its files stay.
func (b *Broker) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == nil {
		return nil
	}
	err := b.proc.signal(syscall.SIGKILL)
	<-b.proc.done
	b.proc, b.paused = nil, false
	return err
}

// Wait returns when the broker has ended on its own, or with ctx's error.
func (b *Broker) Wait(ctx context.Context) error {
	b.mu.Lock()
	proc := b.proc
	b.mu.Unlock()
	if proc == nil {
		return nil
	}
	select {
	case <-proc.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of broker %d: %w", b.id, ctx.Err())
	}
}

// Pause pauses the broker (SIGSTOP): its connections stay open, and it does not answer.
func (b *Broker) Pause() error { return b.pause(syscall.SIGSTOP, true) }

// Resume ends a Pause. The broker then answers the requests that were sent meanwhile.
func (b *Broker) Resume() error { return b.pause(syscall.SIGCONT, false) }

func (b *Broker) pause(sig syscall.Signal, paused bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == nil {
		return fmt.Errorf("send %s to broker %d: it is down", sig, b.id)
	}
	b.paused = paused
	if err := b.proc.signal(sig); err != nil || !paused {
		return err
	}
	for end := time.Now().Add(pauseTimeout); !stopped(b.proc.cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("pause broker %d: it still runs", b.id)
		}
	}
	return nil
}

// LimitFiles simulates a full disk: writes fail that would make a file of the broker larger than bytes, until the broker is started
// again. Kafka takes a log directory offline if it cannot write to it, and ends if it has no other.
func (b *Broker) LimitFiles(bytes uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == nil {
		return fmt.Errorf("limit the files of broker %d: it is down", b.id)
	}
	b.dump = "" // would be cut off
	return limitFileSize(b.proc.cmd.Process.Pid, bytes)
}
