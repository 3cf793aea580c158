package run

import (
	"fmt"
	"io"
	"strings"
)

// figure identifies a median: that of a program's results of one benchmark in one unit.
type figure struct{ name, program, unit string }

// target is a bound for a figure, or for the ratio of two figures. It is left out if a
// figure was not measured.
type target struct {
	what  string
	of    figure
	to    figure // divisor of the ratio; the zero value: no ratio, bound applies to the figure itself
	most  bool   // bound is the highest permitted value, else the lowest
	bound float64
}

const otel = "otel" // peers/otel.sh

func targets() []target {
	var all []target
	least := func(what string, bound float64, of, to figure) {
		all = append(all, target{what: what, of: of, to: to, bound: bound})
	}
	most := func(what string, bound float64, of, to figure) {
		all = append(all, target{what: what, of: of, to: to, bound: bound, most: true})
	}
	itself := figure{}
	bridge := func(name, unit string) figure { return figure{name, "bridge", unit} }
	for _, resource := range []string{"pods", "events"} {
		name := "Throughput/" + resource + "/kafka"
		least(resource+", events/s ÷ OTel", 25, bridge(name, unitRate), figure{name, otel, unitRate})
		most(resource+", CPU per event ÷ OTel", 1.0/30, bridge(name, unitCPU), figure{name, otel, unitCPU})
		if resource == "pods" {
			least("pods, events/s ÷ raw", 0.8, bridge(name, unitRate), figure{name, roleRaw, unitRate})
		}
		most(resource+", CPU per event ÷ raw", 1.3, bridge(name, unitCPU), figure{name, roleRaw, unitCPU})
		most(resource+", peak MB at full speed", 150, bridge(name, unitPeak), itself)
	}
	least("Secrets, events/s: hashed ÷ plain", 0.6, bridge("Throughput/secrets-hash/kafka", unitRate), bridge("Throughput/secrets-plain/kafka", unitRate))
	most("first list of 100,000 pods, MB above idle", 60, bridge("FirstList/n=100000", unitAboveIdle), itself)
	most("inventory of 1,000,000, MB on disk", 60, bridge("Inventory/n=1000000/file", unitDisk), itself)
	most("inventory of 1,000,000, MB above idle after a start", 64, bridge("Inventory/n=1000000/file", unitAboveIdle), itself)
	most("inventory of 1,000,000, s to the first watch", 2, bridge("Inventory/n=1000000/file", unitToWatch), itself)
	most("inventory, CPU per event: 1,000,000 ÷ 1,000 objects", 1.25, bridge("Inventory/n=1000000/file", unitCPU), bridge("Inventory/n=1000/file", unitCPU))
	most("bus down for 5 minutes, MB at its end ÷ when a quarter is over", 1.1, bridge("Outage/for=5m0s", unitLate), bridge("Outage/for=5m0s", unitEarly))
	most("disk buffer, CPU per event: append 1 GB ÷ publish", 1, bridge("Buffer/backlog=1GB", unitAppend), bridge("Buffer/none", unitCPU))
	most("disk buffer, bytes on disk ÷ bytes of frames", 0.25, bridge("Buffer/backlog=10000", unitShare), itself)
	least("disk buffer, events/s: with a backlog of 1 GB ÷ without a buffer", 0.9, bridge("Buffer/backlog=1GB", unitRate), bridge("Buffer/none", unitRate))
	most("disk buffer, peak MB with a backlog: 10 GB ÷ 1 GB", 1.1, bridge("Buffer/backlog=10GB", unitDrainMB), bridge("Buffer/backlog=1GB", unitDrainMB))
	most("latency to Kafka at 2,000/s, p99 ÷ raw", 1.25, bridge("Latency/rate=2000/kafka", unitP99), figure{"Latency/rate=2000/kafka", roleRaw, unitP99})
	most("latency to JetStream at 2,000/s, p99 ÷ raw", 2.5, bridge("Latency/rate=2000/nats", unitP99), figure{"Latency/rate=2000/nats", roleRaw, unitP99})
	least("catch-up of 100,000 pods, events/s ÷ throughput", 0.9, bridge("CatchUp/n=100000/kafka", unitRate), bridge("Throughput/pods/kafka", unitRate))
	most("reconcile of 100,000 unchanged pods, s", 5, bridge("Reconcile/n=100000", unitToSynced), itself)
	least("kube-apiserver, events/s ÷ bare reader", 0.9, bridge("Real/replay", unitRate), figure{"Real/replay", roleRead, unitRate})
	most("kube-apiserver, bridge's CPU ÷ the server's", 0.5, bridge("Real/replay", unitCPU), bridge("Real/replay", serverCPU))
	most("CPU per event: 500 collections ÷ 1", 1.25, bridge("Collections/n=500", unitCPU), bridge("Collections/n=1", unitCPU))
	most("500 idle collections, CPUs", 0.01, bridge("Idle/collections=500", unitBusy), itself)
	return all
}

// targets writes a table of the targets, and whether each was met.
func (r *report) targets(to io.Writer) error {
	var b strings.Builder
	for _, t := range targets() {
		got, ok := r.median(t.of.name, t.of.program, t.of.unit)
		if !ok {
			continue
		}
		if t.to != (figure{}) {
			than, ok := r.median(t.to.name, t.to.program, t.to.unit)
			if !ok || than == 0 {
				continue
			}
			got /= than
		}
		bound, met := "≥ "+short(t.bound), got >= t.bound
		if t.most {
			bound, met = "≤ "+short(t.bound), got <= t.bound
		}
		verdict := "**no**"
		if met {
			verdict = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", t.what, bound, short(got), verdict)
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(to, "\n| target | wanted | measured | met |\n|---|---:|---:|---|\n"+b.String())
	return err
}
