package checkpointtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/paralleltest"
)

const (
	placeVariable = "KUBEBRIDGE_CHECKPOINTTEST_PLACE"
	fromVariable  = "KUBEBRIDGE_CHECKPOINTTEST_FROM"
	marksVariable = "KUBEBRIDGE_CHECKPOINTTEST_MARKS"
	killKeys      = 300

	// patience is when a commit counts as hanging: many times as long as the slowest commit on a busy machine. hung is the same for
	// a process.
	patience = time.Minute
	hung     = 5 * time.Minute
)

// unmarked reports whether a round of the test with marks has no mark: every fourth one.
func unmarked(n int) bool { return n%4 == 3 }

// Main runs a store's tests and looks for leaked goroutines. In a process that
// the suite has started in order to kill it, Main commits to a store until it is killed. ignore
// names the goroutines of a server that the tests run.
func Main(m *testing.M, open func(place string) (Store, error), ignore ...goleak.Option) {
	place, child := os.LookupEnv(placeVariable)
	if !child {
		paralleltest.Raise(16)
		goleak.VerifyTestMain(m, ignore...)
		return
	}
	fmt.Fprintln(os.Stderr, commitUntilKilled(place, open))
	os.Exit(1)
}

// commitUntilKilled commits rounds, and prints the number of each committed round. It returns
// only after an error.
func commitUntilKilled(place string, open func(place string) (Store, error)) error {
	from, err := strconv.Atoi(os.Getenv(fromVariable))
	if err != nil {
		return err
	}
	s, err := open(place)
	if err != nil {
		return err
	}
	marks := os.Getenv(marksVariable) != ""
	for n := from; ; n++ {
		changes := round(n, killKeys)
		if marks && !unmarked(n) {
			changes = append(changes, event.KV{Key: checkpoint.MarkKey(), Value: []byte(strconv.Itoa(n))})
		}
		// After an error, a store on a bus may first have to read what is stored, so the same changes are committed again.
		err := s.Commit(context.Background(), changes)
		for deadline := time.Now().Add(patience); err != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond) // as a pipeline pauses
			err = s.Commit(context.Background(), changes)
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Println(n); err != nil {
			return err // the suite has ended
		}
	}
}

// kill kills a process that commits, at random moments. It checks that all acknowledged commits are
// stored, and no commit in part. With marks, a store with Trails may lose the last commits that have one.
func (c *Config) kill(t *testing.T, marks bool) {
	place := c.Place(t)
	last := -1
	for range 8 {
		acknowledged := c.commitAndKill(t, place, last+1, marks)
		least := acknowledged
		for marks && c.Trails && least > last && !unmarked(least) {
			least--
		}
		s, err := c.Open(place)
		if err != nil {
			t.Fatalf("open after a kill: %v", err)
		}
		found, err := whole(s, killKeys)
		if err != nil {
			t.Fatal(err)
		}
		if found < least || found > acknowledged+1 {
			t.Fatalf("found round %d, %d was acknowledged, and %d had to be durable", found, acknowledged, least)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		last = found
	}
	t.Logf("%d commits under eight kills", last+1)
}

// commitAndKill returns the last acknowledged round; from-1 if none was acknowledged.
func (c *Config) commitAndKill(t *testing.T, place string, from int, marks bool) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), placeVariable+"="+place, fromVariable+"="+strconv.Itoa(from))
	if marks {
		cmd.Env = append(cmd.Env, marksVariable+"=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Kill some processes while they open or create the store, and others during commits.
	killer := func() { _ = cmd.Process.Kill() }
	began := time.Now()
	watchdog := time.AfterFunc(hung, killer)
	defer watchdog.Stop()
	if rand.IntN(4) == 0 {
		defer time.AfterFunc(rand.N(50*time.Millisecond), killer).Stop()
	}
	last, rounds := from-1, rand.IntN(200)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			break // the kill has cut the line off
		}
		last = n
		if n == from+rounds {
			time.AfterFunc(rand.N(3*time.Millisecond), killer)
		}
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Fatalf("the process ended on its own: %v", err)
	}
	if took := time.Since(began); took >= hung {
		t.Fatalf("the process hung after round %d: it was killed after %v", last, took)
	}
	return last
}
