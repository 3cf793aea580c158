package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// printedACLs returns the lines of `bridge rbac --bus` for a user, split into words.
func printedACLs(t *testing.T, bridge, delivery, user string) [][]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	must(t, os.WriteFile(path, fmt.Appendf(nil, "name: %s\ncluster: %s\nresources: [pods, {resource: secrets, topic: 'audit.{cluster}'}]\nsinks: [{name: %s, kafka: {brokers: ['kafka:9092'], delivery: %s}}]\n",
		identity.Bridge, identity.Cluster, identity.Sink, delivery), 0o600))
	cmd := exec.CommandContext(t.Context(), bridge, "rbac", "--bus", "-c", path, "--principal", "User:"+user, "--reader", "User:reader", "--cluster-uid", identity.ClusterUID)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var all [][]string
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 0 && words[0] == "kafka-acls.sh" {
			all = append(all, words)
		}
	}
	return all
}

// apply does what kafka-acls.sh would.
func apply(t *testing.T, c *kafkatest.Cluster, lines [][]string) {
	t.Helper()
	operations := map[string]kadm.ACLOperation{
		"Write": kadm.OpWrite, "Read": kadm.OpRead, "Create": kadm.OpCreate, "Describe": kadm.OpDescribe, "DescribeConfigs": kadm.OpDescribeConfigs,
	}
	for _, words := range lines {
		b := kadm.NewACLs().AllowHosts().ResourcePatternType(kadm.ACLPatternLiteral)
		var ops []kadm.ACLOperation
		for i := 1; i < len(words); i++ {
			value := ""
			if words[i] != "--add" {
				i++
				value = words[i]
			}
			switch flag := words[max(i-1, 0)]; {
			case value == "", flag == "--bootstrap-server":
			case flag == "--allow-principal":
				b = b.Allow(value)
			case flag == "--operation" && operations[value] != 0:
				ops = append(ops, operations[value])
			case flag == "--topic":
				b = b.Topics(value)
			case flag == "--transactional-id":
				b = b.TransactionalIDs(value)
			case flag == "--resource-pattern-type" && value == "prefixed":
				b = b.ResourcePatternType(kadm.ACLPatternPrefixed)
			default:
				t.Fatalf("what is %s %s?", flag, value)
			}
		}
		must(t, c.AddACLs(t.Context(), b.Operations(ops...)))
	}
}

// With exactly the printed ACLs, the bridge can create and write to topics, and write and read its checkpoint, but
// write to no other topic.
func TestPrintedACLsAreEnough(t *testing.T) {
	t.Parallel()
	bridge := filepath.Join(t.TempDir(), "bridge")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bridge, "./cmd/bridge")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	users := map[string]string{"exactly-once": password, "at-least-once": password, "reader": password}
	for _, delivery := range []string{"exactly-once", "at-least-once"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			c := kafkatest.Start(t, kafkatest.Options{Users: users, ACLs: true})
			acls := printedACLs(t, bridge, delivery, delivery)
			conf := as(config(c), "SCRAM-SHA-512", delivery, password)
			conf.Delivery = delivery
			o := kafka.StoreOptions{Options: kafka.Options{Config: conf, Identity: identity}, StandAlone: delivery == "at-least-once"}
			topics := []string{"k8s.c.core.pods", "audit.c"}
			checks := func() error {
				_, err := kafka.Check(t.Context(), o.Options, topics)
				s, _, e := kafka.CheckStore(t.Context(), o)
				if s != nil {
					_ = s.Close()
				}
				if err == nil {
					err = e
				}
				return err
			}
			if err := checks(); err == nil {
				t.Error("without any ACL nothing is found to be wrong")
			}
			apply(t, c, acls)
			for round := range 2 { // the second round finds the topics of the first
				if err := checks(); err != nil {
					t.Errorf("round %d: check: %v", round, err)
				}
				s, err := kafka.NewStore(o)
				must(t, err)
				var bus sink.Sink = kafka.NewTransactional(s)
				if o.StandAlone {
					bus, err = kafka.New(o.Options)
				}
				must(t, err)
				must(t, bus.Open(t.Context(), nil))
				must(t, s.Load(t.Context()))
				changes := []event.KV{{Key: []byte("p/pods"), Value: []byte("x")}}
				batch := &event.Batch{Seq: uint64(round + 1), Records: []event.Record{record(topics[0], "k", "1"), record(topics[1], "k", "1")}, Commit: event.Commit{Changes: changes}}
				for ctx, end := context.WithTimeout(t.Context(), patience); ; { // a topic that was just made has no leader yet
					if _, err = bus.Write(ctx, batch); err == nil || ctx.Err() != nil || strings.Contains(strings.ToLower(err.Error()), "authorization") {
						end()
						break
					}
				}
				must(t, err)
				must(t, s.Commit(t.Context(), changes))
				if round == 1 {
					_, err = bus.Write(t.Context(), &event.Batch{Seq: 3, Records: []event.Record{record("k8s.other.core.pods", "k", "1")}})
					if err == nil {
						t.Error("another cluster's topic was written to")
					}
				}
				must(t, bus.Close())
				must(t, s.Close())
			}
			readsOnly(t, as(config(c), "SCRAM-SHA-512", "reader", password), topics)
		})
	}
}

// readsOnly checks that a user can read all topics and write to none.
func readsOnly(t *testing.T, conf kafka.Config, topics []string) {
	t.Helper()
	r, err := kafka.NewReader(t.Context(), kafka.Options{Config: conf, Identity: identity}, func(string) bool { return true })
	must(t, err)
	defer r.Close()
	_, err = r.At(t.Context(), time.Now().Add(-time.Hour))
	must(t, err)
	var ranges []sink.Range
	for _, p := range r.Parts() {
		ranges = append(ranges, sink.Range{From: p.First, To: p.End})
	}
	found := map[string]int{}
	must(t, r.Read(t.Context(), ranges, false, func(m *sink.Message) error {
		found[r.Parts()[m.Part].Log]++
		return nil
	}))
	if len(found) != len(topics) || found[topics[0]] != 2 || found[topics[1]] != 2 {
		t.Errorf("the reader finds %v, want two in each of %v and nothing else", found, topics)
	}
	conf.Delivery = "at-least-once"
	bus, err := kafka.New(kafka.Options{Config: conf, Identity: identity})
	must(t, err)
	must(t, bus.Open(t.Context(), nil))
	if _, err = bus.Write(t.Context(), &event.Batch{Seq: 1, Records: []event.Record{record(topics[0], "k", "1")}}); !errors.As(err, new(*sink.RouteError)) {
		t.Errorf("a reader writes: %v", err)
	}
	must(t, bus.Close())
}
