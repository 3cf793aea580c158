package run

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/bench/internal/bus"
)

// bench is one run of the program.
type bench struct {
	self   string // this program
	bridge string
	dir    string
	kafka  string // host:port of one that is there; empty is one of our own
	peer   string // a command to run beside the others
	only   string // program
	pin    bool
	keep   bool
	count  int
	scale  float64
	limit  time.Duration // of one measurement
	rate   float64
	period time.Duration
	n      uint64
	worlds int
	report report
}

// scenario is a named benchmark.
type scenario struct {
	name, what string
	run        func(*bench, context.Context) error
}

func scenarios() []scenario {
	return []scenario{
		{"throughput", "pods and Events to both buses, beside the floor and the baseline; Secrets hashed and plain (the default)", (*bench).throughputs},
		{"latency", "at -rate events/s, from the watch frame to the acknowledgement", (*bench).latency},
		{"catchup", "a restart with -objects events behind", (*bench).catchUp},
		{"objects", "-objects objects: memory of the first list, then a reconcile of all of them unchanged", (*bench).listed},
		{"start", "a restart with -objects objects in the inventory", (*bench).restart},
		{"outage", "a bus that stands still for -period, at -rate events/s: memory", (*bench).outage},
		{"collections", "1 to 500 collections: cost per event", (*bench).collections},
		{"idle", "500 quiet collections for -period: CPU", (*bench).idle},
	}
}

// Benchmarks runs what args choose and prints a table. An error is also a record
// that was lost, repeated or out of order.
func Benchmarks(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	b := &bench{}
	var names []string
	usage := "comma-separated, of:"
	for _, s := range scenarios() {
		names = append(names, s.name)
		usage += "\n" + s.name + ": " + s.what
	}
	chosen := flags.String("bench", "throughput", usage)
	out := flags.String("out", "", "file to append the results to, for benchstat")
	flags.StringVar(&b.bridge, "bridge", "../bin/bridge", "the bridge's program")
	flags.StringVar(&b.dir, "dir", "var", "directory for logs and files")
	flags.StringVar(&b.kafka, "kafka", os.Getenv("KUBEBRIDGE_KAFKA"), "host:port of a Kafka to write to; without it, one in memory that keeps nothing")
	flags.StringVar(&b.peer, "peer", "", "command of another program for throughput to Kafka; it gets KUBECONFIG, KAFKA and RESOURCE, and writes to the topic k8s.peer")
	flags.StringVar(&b.only, "only", "", "program to run of those that are compared: bridge, raw or dynamic")
	flags.BoolVar(&b.pin, "pin", true, "the program under test on CPU 1 with GOMAXPROCS=1, the others on CPU 0")
	flags.BoolVar(&b.keep, "keep", false, "keep logs and files")
	flags.IntVar(&b.count, "count", 1, "times that each is run")
	flags.Float64Var(&b.scale, "scale", 1, "of the number of events")
	flags.DurationVar(&b.limit, "limit", 60*time.Second, "of one measurement")
	flags.Float64Var(&b.rate, "rate", 2000, "events per second")
	flags.DurationVar(&b.period, "period", 20*time.Second, "of outage and idle")
	flags.Uint64Var(&b.n, "objects", 100_000, "of catchup, objects and start")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	for _, path := range []*string{&b.dir, &b.bridge} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	for name := range strings.SplitSeq(*chosen, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return fmt.Errorf("-bench: there is no %q; there are %s", name, strings.Join(names, ", "))
		}
		for range b.count {
			if err := scenarios()[i].run(b, ctx); err != nil {
				return errors.Join(fmt.Errorf("%s: %w", name, err), b.report.print(os.Stdout))
			}
		}
	}
	if err := b.report.print(os.Stdout); err != nil {
		return err
	}
	if *out != "" {
		if err := b.report.save(*out); err != nil {
			return err
		}
	}
	return b.report.verdict()
}

func (b *bench) scaled(n float64) uint64 { return max(uint64(n*b.scale), 100) }

// slower is how much less the baseline gets to do, to end in the same time.
const slower = 20

func (b *bench) throughputs(ctx context.Context) error {
	for _, to := range []string{roleKafka, roleNATS} {
		for _, of := range []struct {
			resource string
			events   float64
		}{{"pods", 80_000}, {"events", 400_000}} {
			programs := []string{"bridge", roleRaw, roleDynamic}
			if b.peer != "" && to == roleKafka {
				programs = append(programs, b.peer)
			}
			for _, program := range programs {
				n := of.events
				if program != "bridge" && program != roleRaw {
					n /= slower
				}
				if b.only != "" && program != b.only {
					continue
				}
				if to == roleNATS { // whose server is what takes the time
					n /= 4
				}
				s := setup{program: program, bus: to, resources: of.resource, events: b.scaled(n)}
				r, err := b.throughput(ctx, "Throughput/"+of.resource+"/"+to, s)
				if err != nil {
					return fmt.Errorf("%s, %s to %s: %w", program, of.resource, to, err)
				}
				b.report.add(r)
			}
		}
	}
	if b.only != "" && b.only != "bridge" {
		return nil
	}
	for _, mode := range []string{"plain", "hash"} {
		r, err := b.throughput(ctx, "Throughput/secrets-"+mode+"/"+roleKafka, setup{program: "bridge", bus: roleKafka, resources: "secrets", secrets: mode, events: b.scaled(100_000)})
		if err != nil {
			return fmt.Errorf("secrets, %s: %w", mode, err)
		}
		b.report.add(r)
	}
	return nil
}

func (b *bench) latency(ctx context.Context) error {
	for _, to := range []string{roleKafka, roleNATS} {
		for _, program := range []string{"bridge", roleRaw} {
			s := setup{program: program, bus: to, resources: "pods", rate: b.rate, events: max(uint64(b.rate*b.period.Seconds()), 1)}
			r, err := b.throughput(ctx, fmt.Sprintf("Latency/rate=%g/%s", b.rate, to), s)
			if err != nil {
				return err
			}
			b.report.add(r)
		}
	}
	return nil
}

func (b *bench) collections(ctx context.Context) error {
	for _, n := range []uint64{1, 10, 100, 500} {
		s := setup{program: "bridge", bus: roleKafka, resources: fmt.Sprintf("widgets*%d", n), events: b.scaled(100_000) / n, objects: max(1000/n, 2)}
		r, err := b.throughput(ctx, fmt.Sprintf("Collections/n=%d", n), s)
		if err != nil {
			return err
		}
		b.report.add(r)
	}
	return nil
}

func (b *bench) idle(ctx context.Context) error {
	w, err := b.newWorld(setup{program: "bridge", bus: roleKafka, resources: "widgets*500", initial: 1, objects: 1})
	if err != nil {
		return err
	}
	defer w.close()
	if err := errors.Join(w.start(), w.watching(ctx, b.limit)); err != nil {
		return err
	}
	if _, err := w.arrived(ctx, w.total(), b.limit); err != nil {
		return err
	}
	select { // what follows a start
	case <-time.After(b.period / 4):
	case <-ctx.Done():
		return ctx.Err()
	}
	before := w.sut.cpu()
	select {
	case <-time.After(b.period):
	case <-ctx.Done():
		return ctx.Err()
	}
	r := result{Name: "Idle/collections=500", Program: "bridge", Due: w.total(), Peak: w.sut.peak(), Busy: (w.sut.cpu() - before) / b.period.Seconds()}
	if r.Seen, err = w.stats(""); err != nil {
		return err
	}
	b.report.add(r)
	return nil
}

// synced is how many records tell of one list's end: the broker of our own
// has bus.Partitions partitions, and one that is there gets the bridge's default,
// which is the same.
func (b *bench) synced() uint64 { return bus.Partitions }
