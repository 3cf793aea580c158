// Package run starts the processes of benchmarks, and reports the results.
package run

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubebridge/kubebridge/bench/internal/bus"
	"github.com/kubebridge/kubebridge/bench/internal/feed"
	"github.com/kubebridge/kubebridge/bench/internal/mark"
	"github.com/kubebridge/kubebridge/bench/internal/peer"
)

// Roles of processes. The process with the role "" starts the others.
const (
	roleFeed    = "feed"
	roleKafka   = "kafka"
	roleNATS    = "nats"
	roleConsume = "consume"
	roleRaw     = "raw"
	roleDynamic = "dynamic"
	roleRead    = "read"
)

// hello is a line of JSON that a process writes to its standard output when it is
// ready.
type hello struct {
	Address string // for the program under test
	Control string // for the benchmark, host:port or a URL
}

func (h hello) say() error { return json.NewEncoder(os.Stdout).Encode(h) }

// Main runs this process in a role.
func Main(ctx context.Context, role string, args []string) error {
	switch role {
	case "":
		return Benchmarks(ctx, args)
	case roleFeed:
		return feedRole(ctx, args)
	case roleKafka, roleNATS, roleConsume:
		return busRole(ctx, role, args)
	case roleRaw, roleDynamic:
		return peerRole(ctx, role, args)
	case roleRead:
		return readRole(ctx, args)
	default:
		return fmt.Errorf("unknown process %q", role)
	}
}

func feedRole(ctx context.Context, args []string) error {
	var (
		flags      = flag.NewFlagSet(roleFeed, flag.ExitOnError)
		shape      feed.Resource
		o          feed.Options
		list       = flags.String("resources", "pods", "resources to serve: pods, events, secrets, widgets*N")
		kubeconfig = flags.String("kubeconfig", "", "kubeconfig file to write")
	)
	flags.Uint64Var(&shape.Events, "events", 0, "number of events of each resource")
	flags.Uint64Var(&shape.Objects, "objects", 1000, "number of objects of each resource that its events are about")
	flags.Uint64Var(&shape.Initial, "initial", 0, "number of objects of each resource that exist before its first event")
	flags.Uint64Var(&shape.Silent, "silent", 0, "number of first events of each resource that no watch receives")
	flags.BoolVar(&shape.Distinct, "distinct", false, "make objects differ as those of a cluster do")
	flags.Float64Var(&o.Rate, "rate", 0, "events per second in total; 0 is as fast as clients read them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if o.Resources, err = feed.Parse(*list, shape); err != nil {
		return err
	}
	s, err := feed.New(o)
	if err != nil {
		return err
	}
	return s.Listen(ctx, func(config []byte, url string) error {
		if err := os.WriteFile(*kubeconfig, config, 0o600); err != nil {
			return err
		}
		return hello{url, url}.say()
	})
}

func busRole(ctx context.Context, role string, args []string) error {
	var (
		flags   = flag.NewFlagSet(role, flag.ExitOnError)
		dir     = flags.String("dir", "", "directory of the NATS server's files")
		address = flags.String("address", "", "address of the Kafka to consume from")
		cluster = flags.String("cluster", "", "name of the cluster whose topics are consumed")
		tracker mark.Tracker
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	control := make(chan string, 1)
	ready := func(address string) error {
		select {
		case c := <-control:
			return hello{address, "http://" + c}.say()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	group.Go(func() error { return bus.Control(ctx, &tracker, func(a string) { control <- a }) })
	group.Go(func() error {
		switch role {
		case roleKafka:
			return bus.Kafka(ctx, &tracker, ready)
		case roleNATS:
			return bus.NATS(ctx, &tracker, *dir, ready)
		default:
			return bus.ConsumeKafka(ctx, &tracker, *address, *cluster, ready)
		}
	})
	return group.Wait()
}

func peerRole(ctx context.Context, role string, args []string) error {
	var (
		flags      = flag.NewFlagSet(role, flag.ExitOnError)
		kubeconfig = flags.String("kubeconfig", "", "kubeconfig file to read")
		kafka      = flags.String("kafka", "", "address of a Kafka broker")
		url        = flags.String("nats", "", "URL of the NATS server")
		to         = flags.String("to", "k8s.raw", "topic or subject to write to")
		resource   = flags.String("resource", "pods", "resource of the core group")
		sender     peer.Sender
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	if *kafka != "" {
		s, c, err := peer.Kafka(ctx, *kafka, *to)
		if err != nil {
			return err
		}
		defer func() {
			flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = c.Flush(flush) // ignore an error, because the measurement is over
			c.Close()
		}()
		sender = s
	} else {
		s, c, err := peer.NATS(ctx, *url, *to)
		if err != nil {
			return err
		}
		defer c.Close()
		sender = s
	}
	run := peer.Raw
	if role == roleDynamic {
		run = peer.Dynamic
	}
	if err := run(ctx, config, *resource, sender); !errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	return nil
}

func readRole(ctx context.Context, args []string) error {
	var (
		flags      = flag.NewFlagSet(roleRead, flag.ExitOnError)
		kubeconfig = flags.String("kubeconfig", "", "kubeconfig file to read")
		resource   = flags.String("resource", "pods", "resource of the core group")
		rv         = flags.String("rv", "", "resourceVersion to begin after")
		events     = flags.Uint64("events", 0, "number of events to read")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	r, err := peer.Read(ctx, config, *resource, *rv, *events)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
