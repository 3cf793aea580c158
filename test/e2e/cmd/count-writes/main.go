// Command count-writes changes ConfigMaps in a namespace of its own until SIGTERM, while bridges publish the changes to its NATS
// servers. It begins when each server has a first synced event, since what ends before that is not published. At the end it
// checks what each server holds: every write once, or with at-least-once delivery at least once.
//
// Its first line of output has the servers: exactly-once=127.0.0.1:20001 at-least-once=127.0.0.1:20002.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

const (
	namespace = "written"
	every     = 100 * time.Millisecond // between two writes
	patience  = time.Minute            // for the last write to be on the bus
)

const exactlyOnce, atLeastOnce = "exactly-once", "at-least-once"

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "path of a kubeconfig file")
	dir := flag.String("dir", "", "directory of the servers' data")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *dir, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "count-writes:", err)
		os.Exit(1)
	}
}

// run writes until ctx ends, and then checks the server of each delivery.
func run(ctx context.Context, kubeconfig, dir string, deliveries []string) error {
	client, err := kube.Connect(kubeconfig, namespace)
	if err != nil {
		return err
	}
	if _, err := client.Create(ctx, kube.Namespaces, namespace, nil); err != nil {
		return err
	}
	servers := make([]*bus.NATS, len(deliveries))
	addresses := make([]string, len(deliveries))
	for i, delivery := range deliveries {
		if delivery != exactlyOnce && delivery != atLeastOnce {
			return fmt.Errorf("delivery %q, want %s or %s", delivery, exactlyOnce, atLeastOnce)
		}
		if servers[i], err = bus.StartNATS(filepath.Join(dir, delivery)); err != nil {
			return err
		}
		defer servers[i].Close()
		addresses[i] = delivery + "=" + servers[i].Addr()
	}
	fmt.Println(strings.Join(addresses, " "))
	for _, server := range servers {
		if _, err := server.Wait(ctx, func(messages []bus.Message) bool {
			return slices.ContainsFunc(messages, func(m bus.Message) bool { return m.Is("synced") })
		}); err != nil {
			return err
		}
	}
	if err := write(ctx, client); err != nil {
		return err
	}
	waiting, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer stop()
	last, err := client.Create(waiting, kube.ConfigMaps, "last", nil)
	if err != nil {
		return err
	}
	for i, server := range servers {
		if err := count(waiting, server, string(last.GetUID()), client.Ledger, deliveries[i]); err != nil {
			return fmt.Errorf("%s: %w", deliveries[i], err)
		}
	}
	return nil
}

// write creates ConfigMaps, changes each once, and deletes it 20 rounds later, until ctx ends.
func write(ctx context.Context, client *kube.Client) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	whole := context.WithoutCancel(ctx) // a write that is cut off may have been made, and would not be in the ledger
	for round := 0; ; round++ {
		name := fmt.Sprintf("n%d", round)
		steps := []func() error{
			func() error { _, err := client.Create(whole, kube.ConfigMaps, name, nil); return err },
			func() error {
				_, err := client.Patch(whole, kube.ConfigMaps, name, `{"data":{"changed":"yes"}}`)
				return err
			},
		}
		if old := round - 20; old >= 0 {
			steps = append(steps, func() error { return client.Delete(whole, kube.ConfigMaps, fmt.Sprintf("n%d", old)) })
		}
		for _, step := range steps {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
			if err := step(); err != nil {
				return err
			}
		}
	}
}

// count waits for the last write to be on the bus, checks everything there, and prints how much it is.
func count(ctx context.Context, server *bus.NATS, last string, ledger *kube.Ledger, delivery string) error {
	all, err := server.Wait(ctx, func(messages []bus.Message) bool {
		return slices.ContainsFunc(messages, func(m bus.Message) bool { return m.UID() == last })
	})
	if err != nil {
		return err
	}
	// Every namespace has a ConfigMap that the controller manager writes.
	all = slices.DeleteFunc(slices.Clone(all), func(m bus.Message) bool { return m.Name() == namespace+"/kube-root-ca.crt" })
	problems := check.History(ledger, all, check.Options{Types: []kube.Type{kube.ConfigMaps}, Repeats: delivery == atLeastOnce})
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	writes := 0
	for _, object := range ledger.Objects(kube.ConfigMaps) {
		writes += len(object.RVs)
		if object.Deleted {
			writes++
		}
	}
	events, ids := 0, map[string]bool{}
	for i := range all {
		if !all[i].OfCollection() {
			events++
			ids[all[i].ID()] = true
		}
	}
	fmt.Printf("%s: %d writes, %d events, %d repeated\n", delivery, writes, events, events-len(ids))
	return nil
}
