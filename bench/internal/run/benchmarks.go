package run

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/bench/internal/bus"
)

// bench is one run of the program.
type bench struct {
	self    string // path of this program
	bridge  string
	dir     string
	kafka   string // host:port of an existing Kafka; empty: kfake
	peer    string // command of a further program for comparison
	cluster string // program of kube-apiserver with etcd; empty: that of test/cluster
	only    string // the only program to run; empty: all
	pin     bool
	keep    bool
	count   int
	scale   float64
	limit   time.Duration // time limit of one measurement
	rates   []float64     // of the benchmark latency, events per second
	lingers []time.Duration
	rate    float64 // of the benchmark outage, events per second
	period  time.Duration
	worlds  int
	idleMB  float64 // resident memory of a bridge that has nothing to do; 0: not measured yet
	report  report
}

// scenario is a named benchmark.
type scenario struct {
	name, what string
	run        func(*bench, context.Context) error
}

func scenarios() []scenario {
	return []scenario{
		{"throughput", "pods and Events to both buses, compared with the programs raw and dynamic; Secrets hashed and plain (the default)", (*bench).throughputs},
		{"options", "what each option of a resource costs a pod", (*bench).options},
		{"latency", "at -rates, with -lingers, from the watch frame to the acknowledgement", (*bench).latency},
		{"catchup", "a restart after 100,000 events of pods: time until they are published", (*bench).catchUp},
		{"objects", "100,000 pods: memory of the first list, then a reconcile of all of them unchanged", (*bench).listed},
		{"inventory", "a restart with 1,000 to 1,000,000 objects in the inventory, then cost per event", (*bench).inventories},
		{"outage", "a bus that is frozen for -period, at -rate events/s: memory", (*bench).outage},
		{"buffer", "a bus that is frozen: cost of appending pods to the disk buffer beside publishing them, size, memory with a backlog of 1 and 10 GB, and a restart with it", (*bench).buffers},
		{"collections", "1 to 500 collections: cost per event", (*bench).collections},
		{"idle", "500 quiet collections: CPU", (*bench).idle},
		{"real", "a kube-apiserver with etcd sends 20,000 events of 5,000 pods; compared with a reader that publishes nothing", (*bench).real},
	}
}

// choose returns the scenarios that a list names.
func choose(list string) (chosen []scenario, err error) {
	all := scenarios()
	if list == "all" {
		return all, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-bench: there is no %q; -bench=-h lists them", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// flags returns the flags of the program, and the values of -bench and -out.
func (b *bench) flags() (flags *flag.FlagSet, chosen, out *string) {
	flags = flag.NewFlagSet("bench", flag.ExitOnError)
	usage := "comma-separated, or all, of:"
	for _, s := range scenarios() {
		usage += "\n" + s.name + ": " + s.what
	}
	chosen = flags.String("bench", "throughput", usage)
	out = flags.String("out", "", "file to append the results to, for benchstat")
	flags.StringVar(&b.bridge, "bridge", "../bin/bridge", "the bridge's program")
	flags.StringVar(&b.dir, "dir", "var", "directory for logs and files")
	flags.StringVar(&b.kafka, "kafka", os.Getenv("KUBEBRIDGE_KAFKA"), "host:port of a Kafka to write to; NATS is not measured then. Without it, a Kafka in memory that discards records")
	flags.StringVar(&b.peer, "peer", "", "command of another program for throughput to Kafka; it gets KUBECONFIG, KAFKA and RESOURCE, and writes to the topic k8s.peer")
	flags.StringVar(&b.cluster, "cluster", "", "program of the API server; without it, what scripts/cluster.sh builds")
	flags.StringVar(&b.only, "only", "", "the only program to measure: bridge, raw or dynamic; without it, all three")
	flags.BoolVar(&b.pin, "pin", true, "run the program under test on CPU 1 with GOMAXPROCS=1, and the others on CPU 0")
	flags.BoolVar(&b.keep, "keep", false, "keep logs and files")
	flags.IntVar(&b.count, "count", 1, "number of runs of each measurement; tables show medians")
	flags.Float64Var(&b.scale, "scale", 1, "factor for the number of events and objects")
	flags.DurationVar(&b.limit, "limit", 60*time.Second, "time limit of one measurement")
	flags.Float64Var(&b.rate, "rate", 2000, "events per second in the benchmark outage")
	flags.DurationVar(&b.period, "period", 20*time.Second, "duration of the benchmarks outage and idle, and of each measurement of latency")
	b.rates, b.lingers = []float64{2000}, []time.Duration{0}
	flags.Func("rates", "events per second in the benchmark latency, comma-separated (default 2000)", func(s string) (err error) {
		b.rates, err = list(s, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
		return err
	})
	flags.Func("lingers", "the bridge's linger in the benchmark latency, comma-separated (default 0s)", func(s string) (err error) {
		b.lingers, err = list(s, time.ParseDuration)
		return err
	})
	return flags, chosen, out
}

func list[T any](s string, parse func(string) (T, error)) (all []T, err error) {
	for one := range strings.SplitSeq(s, ",") {
		v, err := parse(one)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// Benchmarks runs the benchmarks that args choose, and prints tables. If one fails,
// the others run nevertheless. Benchmarks returns an error if one fails, or if the
// bridge loses, repeats or reorders a record.
func Benchmarks(ctx context.Context, args []string) error {
	b := &bench{}
	flags, names, out := b.flags()
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*names)
	if err != nil {
		return err
	}
	for _, path := range []*string{&b.dir, &b.bridge} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	var failed []error
	for _, s := range chosen {
		for range b.count {
			if err := s.run(b, ctx); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
				fmt.Fprintln(os.Stderr, failed[len(failed)-1])
			}
			if ctx.Err() != nil {
				break
			}
		}
	}
	failed = append(failed, b.report.print(os.Stdout))
	if *out != "" {
		failed = append(failed, b.report.save(*out))
	}
	return errors.Join(append(failed, b.report.verdict())...)
}

func (b *bench) scaled(n float64) uint64 { return max(uint64(n*b.scale), 100) }

// slower is the factor by which programs other than the bridge and raw get fewer
// events, so that they end in the same time.
const slower = 20

// buses returns the buses to measure. An existing Kafka is measured alone.
func (b *bench) buses() []string {
	if b.kafka != "" {
		return []string{roleKafka}
	}
	return []string{roleKafka, roleNATS}
}

// label returns the name of a bus in tables.
func (b *bench) label(bus string) string {
	if bus == roleKafka && b.kafka != "" {
		return "real-kafka"
	}
	return bus
}

func (b *bench) throughputs(ctx context.Context) error {
	var failed []error
	measure := func(name string, s setup) {
		if b.only != "" && named(s.program) != b.only || ctx.Err() != nil {
			return
		}
		r, err := b.throughput(ctx, name, s)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s, %s: %w", name, named(s.program), err))
			return
		}
		b.report.add(r)
	}
	for _, to := range b.buses() {
		for _, of := range []struct {
			resource string
			events   float64
		}{{"pods", 80_000}, {"events", 400_000}} {
			programs := []string{"bridge", roleRaw}
			if b.kafka == "" {
				programs = append(programs, roleDynamic)
			}
			if b.peer != "" && to == roleKafka {
				programs = append(programs, b.peer)
			}
			for _, program := range programs {
				n := of.events
				if program != "bridge" && program != roleRaw {
					n /= slower
				}
				if to == roleNATS { // the NATS server is the bottleneck
					n /= 4
				}
				measure("Throughput/"+of.resource+"/"+b.label(to), setup{program: program, bus: to, resources: of.resource, events: b.scaled(n)})
			}
		}
	}
	for _, mode := range []string{"plain", "hash"} {
		measure("Throughput/secrets-"+mode+"/"+b.label(roleKafka), setup{program: "bridge", bus: roleKafka, resources: "secrets", secrets: mode, events: b.scaled(100_000)})
	}
	return errors.Join(failed...)
}

// options measures pods to Kafka, each time with one option.
func (b *bench) options(ctx context.Context) error {
	var failed []error
	for _, o := range []struct{ name, options, format string }{
		{"none", "", ""},
		{"binary", "", "binary"},
		{"filter-name", `filter: 'ns != "nowhere"'`, ""},
		{"filter-object", `filter: 'object.spec.nodeName != "nowhere"'`, ""},
		{"ignore", "ignore: [status-heartbeats]", ""},
		{"redact-path", "redact: [status.podIP]", ""},
		{"redact-podEnv", "redact: [podEnv]", ""},
		{"drop-status", "drop: [status]", ""},
		{"changedBy", "changedBy: true", ""},
		{"diff-patch", "diff: patch", ""},
		{"diff-before", "diff: before", ""},
		{"diff-both", "diff: both", ""},
	} {
		name := "Options/" + o.name
		r, err := b.throughput(ctx, name, setup{
			program: "bridge", bus: roleKafka, resources: "pods", events: b.scaled(40_000), options: o.options, format: o.format,
		})
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
			continue
		}
		b.report.add(r)
	}
	return errors.Join(failed...)
}

func (b *bench) latency(ctx context.Context) error {
	for _, to := range b.buses() {
		for _, rate := range b.rates {
			s := setup{program: roleRaw, bus: to, resources: "pods", rate: rate, events: max(uint64(rate*b.period.Seconds()), 1)}
			name := fmt.Sprintf("Latency/rate=%g/%s", rate, b.label(to))
			r, err := b.throughput(ctx, name, s)
			if err != nil {
				return err
			}
			b.report.add(r)
			s.program = "bridge"
			for _, s.linger = range b.lingers {
				if r, err = b.throughput(ctx, name, s); err != nil {
					return err
				}
				if s.linger != 0 {
					r.Name = fmt.Sprintf("Latency/rate=%g/linger=%s/%s", rate, s.linger, b.label(to))
				}
				b.report.add(r)
			}
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
	if err := pause(ctx, b.period/4); err != nil { // wait until the work after the start is done
		return err
	}
	before := w.sut.cpu()
	if err := pause(ctx, b.period); err != nil {
		return err
	}
	r := result{Name: "Idle/collections=500", Program: "bridge", Due: w.total(), Peak: w.sut.peak(), Busy: (w.sut.cpu() - before) / b.period.Seconds()}
	if r.Seen, err = w.stats(""); err != nil {
		return err
	}
	b.report.add(r)
	return nil
}

// synced returns the number of records of one synced event, which comes in every
// partition. Topics in kfake have bus.Partitions partitions. Topics in an existing
// Kafka have the bridge's default, which is the same number.
func (b *bench) synced() uint64 { return bus.Partitions }

// pause waits for the time d, or until ctx is cancelled.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
