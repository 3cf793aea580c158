package run

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The CPUs to which processes are pinned. The program under test does not share its CPU.
const (
	otherCPU = 0
	testCPU  = 1
)

// process is a child process. The caller must stop it.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // the error of Wait; valid when done is closed
	log  string
}

// spawn starts a program, and writes its output to a file in dir. If said is not nil,
// spawn waits for the first line of standard output, and decodes it as JSON into said.
func spawn(dir, name string, cpu int, said any, args ...string) (*process, error) {
	env := os.Environ()
	if cpu >= 0 {
		args = append([]string{"taskset", "-c", strconv.Itoa(cpu)}, args...)
		env = append(env, "GOMAXPROCS=1")
	}
	p := &process{name: name, cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{}), log: filepath.Join(dir, name+".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Env, p.cmd.Stderr = env, log
	p.cmd.WaitDelay = time.Second
	var out io.ReadCloser
	if said == nil {
		p.cmd.Stdout = log
	} else if out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	line := make(chan error, 1)
	go func() {
		if said != nil {
			b, err := bufio.NewReader(out).ReadBytes('\n')
			if err == nil {
				err = json.Unmarshal(b, said)
			}
			line <- err
		} else {
			line <- nil
		}
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	select {
	case err = <-line:
	case <-time.After(startLimit):
		err = fmt.Errorf("the process did not report that it is ready within %s", startLimit)
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("start %s: %w\n%s", name, err, p.tail())
	}
	return p, nil
}

// stop ends the process with SIGTERM, or with SIGKILL after ten seconds. It returns
// when the process has ended.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// kill ends the process without a warning.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // ignore an error: it has ended
	<-p.done
}

// freeze stops all threads of the process until a SIGCONT.
func (p *process) freeze(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return await(ctx, startLimit, p.name+" to freeze", func() (bool, error) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		for _, stat := range threads {
			b, err := os.ReadFile(stat)
			if err != nil {
				return false, err
			}
			if state := strings.TrimSpace(string(b[strings.LastIndexByte(string(b), ')')+1:])); state[0] != 'T' {
				return false, nil
			}
		}
		return true, err
	})
}

// tail returns the end of the process's log.
func (p *process) tail() string {
	b, _ := os.ReadFile(p.log)
	return string(b[max(0, len(b)-2000):])
}

// ended returns an error if the process has ended.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s has ended: %v\n%s", p.name, p.err, p.tail())
	default:
		return nil
	}
}

// clockTicks is the unit of CPU times in /proc: USER_HZ, 100 on every Linux.
const clockTicks = 100

// cpu returns the CPU time used so far, in seconds.
func (p *process) cpu() float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / clockTicks
}

// rss returns a field of /proc/PID/status in MiB. VmRSS is the present resident
// memory; VmHWM is its peak since the start or the last call of resetPeak.
func (p *process) rss(field string) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	_, after, _ := strings.Cut(string(b), field+":")
	if f := strings.Fields(after); len(f) > 0 {
		kb, _ := strconv.ParseFloat(f[0], 64)
		return kb / 1024
	}
	return 0
}

func (p *process) peak() float64 { return p.rss("VmHWM") }

// resetPeak resets the peak of the resident memory (proc(5), clear_refs).
func (p *process) resetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0)
}

// await calls ok until it returns true or an error, ctx is cancelled, or the limit has
// passed.
func await(ctx context.Context, limit time.Duration, what string, ok func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for {
		done, err := ok()
		switch {
		case err != nil || done:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("%w: waited %s for %s", errLate, limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

var errLate = errors.New("timeout")
