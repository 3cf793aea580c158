package kafkatest

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

// childEnv makes the test binary a program that launches a cluster, prints its directory and the ID of a broker's process, and waits to be killed.
const childEnv = "KAFKATEST_LAUNCH"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	c, err := Launch(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.dir, c.brokers[0].proc.cmd.Process.Pid)
	select {}
}

// If a test is killed, its brokers end, too.
func TestBrokerDiesWithTest(t *testing.T) {
	t.Parallel()
	if os.Getenv(Env) != "" {
		t.Skip("the brokers are not processes of this test: " + Env + " is set")
	}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dir, number, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid, convErr := strconv.Atoi(number)
	if err != nil || convErr != nil {
		t.Fatalf("the child said %q (%v)", line, err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("broker: %v", err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // returns an error, because it was killed
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := await(ctx, "the end of the broker", func(context.Context) (bool, error) {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(state), ") Z "), nil // the process is gone, or is a zombie that init has not reaped yet
	}); err != nil {
		t.Error(err)
	}
}

// patience is how long a test waits before it fails.
const patience = 3 * time.Minute

// produce writes values to a topic, and returns when they are acknowledged or ctx is cancelled. Records have no deadline of their own,
// because the move of a leader on a busy machine could exceed it.
func produce(ctx context.Context, t *testing.T, c *Cluster, topic string, values ...string) error {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, &kgo.Record{Topic: topic, Value: []byte(v)})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func mustProduce(t *testing.T, c *Cluster, topic string, values ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := produce(ctx, t, c, topic, values...); err != nil {
		t.Fatalf("produce: %v", err)
	}
}

// wantValues fails the test unless a topic of one partition has exactly these values.
func wantValues(t *testing.T, c *Cluster, topic string, want ...string) {
	t.Helper()
	records, err := c.Read(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		got = append(got, string(r.Value))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("topic %q holds %q, want %q", topic, got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// suffix makes names unique in an external Kafka that other tests use as well.
func suffix() string { return fmt.Sprintf("%x", rand.Uint64()) }
