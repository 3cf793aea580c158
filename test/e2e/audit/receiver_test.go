package audit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/webhook"
)

// receiverDir and receiverListen, if set, make the test program a receiver: the webhook with an inbox in that directory.
const (
	receiverDir    = "KUBEBRIDGE_AUDIT_RECEIVER_DIR"
	receiverListen = "KUBEBRIDGE_AUDIT_RECEIVER_LISTEN"
)

// receive is the program of a receiver. It prints its address, and the user agent of each record.
func receive(ctx context.Context, dir, listen string) error {
	log, err := zap.NewDevelopment()
	if err != nil {
		return err
	}
	box, err := inbox.Open(filepath.Join(dir, "inbox"), inbox.Options{MaxBytes: inbox.LeastMaxBytes})
	if err != nil {
		return err
	}
	s, err := webhook.New(webhook.Options{
		Listen: listen, Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), TokenFile: filepath.Join(dir, "token"),
		Parser: audit.NewParser(audit.Options{}), Store: box, Log: log,
	})
	if err != nil {
		return errors.Join(err, box.Close())
	}
	fmt.Println("listening", s.Addr())
	go func() {
		for r := box.Reader(inbox.Position{}); ; {
			item, err := r.Next()
			if errors.Is(err, io.EOF) {
				if err := r.Wait(ctx); err != nil {
					return
				}
				continue
			}
			if err != nil {
				fmt.Println("error", err)
				return
			}
			if item.Record != nil {
				fmt.Println("record", item.Record.Actor.UserAgent)
			}
		}
	}()
	return errors.Join(s.Run(ctx), box.Close())
}

// receiver is a process that is killed and started again.
type receiver struct {
	t       testing.TB
	dir     string
	address string

	mu      sync.Mutex
	process *exec.Cmd
	ended   chan struct{}
	agents  map[string]bool // of all records that any of the processes has printed
	changed chan struct{}
}

func newReceiver(t testing.TB, dir string) *receiver {
	r := &receiver{t: t, dir: dir, address: "127.0.0.1:0", agents: map[string]bool{}, changed: make(chan struct{}, 1)}
	must(t, r.start())
	t.Cleanup(r.kill)
	return r
}

// start starts the process, and returns when it listens.
func (r *receiver) start() error {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), receiverDir+"="+r.dir, receiverListen+"="+r.address)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	listens, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			switch word {
			case "listening":
				listens <- rest
			case "record":
				r.saw(rest)
			default:
				r.t.Errorf("receiver: %s", lines.Text())
			}
		}
		_ = cmd.Wait() // it was killed
	}()
	r.mu.Lock()
	r.process, r.ended = cmd, ended
	r.mu.Unlock()
	select {
	case r.address = <-listens:
		return nil
	case <-ended:
		return errors.New("the receiver has ended")
	case <-time.After(patience):
		return errors.New("the receiver does not listen")
	}
}

// kill kills the process, as kill -9 does.
func (r *receiver) kill() {
	r.mu.Lock()
	process, ended := r.process, r.ended
	r.mu.Unlock()
	_ = process.Process.Kill() // it may have ended
	<-ended
}

func (r *receiver) saw(agent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.agents[agent] = true
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// missing returns an agent without a record, "" if each has one.
func (r *receiver) missing(agents []string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range agents {
		if !r.agents[a] {
			return a
		}
	}
	return ""
}

// await waits until there is a record of each agent.
func (r *receiver) await(agents []string) {
	r.t.Helper()
	for deadline := time.After(patience); r.missing(agents) != ""; {
		select {
		case <-r.changed:
		case <-deadline:
			r.t.Fatalf("there is no record of %s", r.missing(agents))
		}
	}
}
