package campaign

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// serveEnv is an environment variable that makes this program a NATS server. The server is a process of its own, so that it can be killed
// and frozen. The value is PORT:DIRECTORY.
const serveEnv = "KUBEBRIDGE_CAMPAIGN_NATS"

// ServeNATS runs a NATS server until SIGTERM, if that is what this process was started for, and reports whether it was.
func ServeNATS() (bool, error) {
	value := os.Getenv(serveEnv)
	if value == "" {
		return false, nil
	}
	o := &server.Options{Host: "127.0.0.1", JetStream: true, NoLog: true, NoSigs: true}
	if _, err := fmt.Sscanf(value, "%d:%s", &o.Port, &o.StoreDir); err != nil {
		return true, fmt.Errorf("%s=%s: %w", serveEnv, value, err)
	}
	s, err := server.NewServer(o)
	if err != nil {
		return true, err
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return true, fmt.Errorf("NATS is not ready after 20 s")
	}
	fmt.Println(s.ClientURL())
	<-stop.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return true, nil
}

// natsServer is a NATS server in a process of its own: see [ServeNATS].
type natsServer struct {
	dir  string
	port int
	cmd  *exec.Cmd
	done chan struct{}
}

// startNATS starts a NATS server on a free port.
func startNATS(dir string) (*natsServer, error) {
	n := &natsServer{dir: dir, port: server.RANDOM_PORT}
	return n, n.start()
}

func (n *natsServer) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	n.cmd = exec.Command(self)
	n.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%s", serveEnv, n.port, n.dir))
	n.cmd.Stderr = os.Stderr
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	n.done = make(chan struct{})
	started := make(chan error, 1)
	go func() { // the kernel sends the parent-death signal when the thread that started the process ends, so this thread waits for the process
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(n.done)
		if err := n.cmd.Start(); err != nil {
			started <- err
			return
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err == nil {
			_, err = fmt.Sscanf(strings.TrimSpace(line), "nats://127.0.0.1:%d", &n.port)
		}
		started <- err
		_ = n.cmd.Wait() // returns an error, because the process is ended by a signal
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start NATS: %w", err)
	}
	return nil
}

func (n *natsServer) addr() string { return fmt.Sprintf("127.0.0.1:%d", n.port) }

func (n *natsServer) signal(s syscall.Signal) { _ = n.cmd.Process.Signal(s) }

// end ends the server by a signal, and returns when the process has ended.
func (n *natsServer) end(s syscall.Signal) {
	n.signal(s)
	<-n.done
}
