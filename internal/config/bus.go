package config

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// block is the part of a sink's configuration that selects its bus.
type block struct {
	bus.Config        // with defaults only if set is false
	kind       string // its key in the file
	set        bool   // the sink has it
}

// blocks returns the blocks that a sink can have: the fields that implement [bus.Config].
func (s *Sink) blocks() (all []block) {
	v := reflect.ValueOf(s).Elem()
	for f := range v.Type().Fields() {
		if !f.Type.Implements(reflect.TypeFor[bus.Config]()) {
			continue
		}
		value := v.FieldByIndex(f.Index)
		set := !value.IsNil()
		if !set {
			value = reflect.New(f.Type.Elem())
		}
		all = append(all, block{value.Interface().(bus.Config), f.Tag.Get("yaml"), set})
	}
	return all
}

// block returns the sink's block; ok is false if it has none.
func (s *Sink) block() (b block, ok bool) {
	all := s.blocks()
	if i := slices.IndexFunc(all, func(b block) bool { return b.set }); i >= 0 {
		return all[i], true
	}
	return b, false
}

// kinds returns the keys of the blocks whose traits fit, as a text.
func kinds(conjunction string, fits func(bus.Traits) bool) string {
	var keys []string
	for _, b := range (&Sink{}).blocks() {
		if fits(b.Traits()) {
			keys = append(keys, b.kind)
		}
	}
	last := len(keys) - 1
	return strings.Join(keys[:last], ", ") + " " + conjunction + " " + keys[last]
}

// traits returns those of the sink's bus; none without a block.
func (s *Sink) traits() bus.Traits {
	if b, ok := s.block(); ok {
		return b.Traits()
	}
	return bus.Traits{}
}

// OnBus reports whether a sink's checkpoint is kept on its bus.
func (c *Config) OnBus(s *Sink) bool { return s.traits().Keeps.OnBus(c.Checkpoint.File.Path) }

// CheckpointDir returns the directory of a sink's checkpoint. "": it is kept on the bus or, for stdout, in memory.
func (c *Config) CheckpointDir(s *Sink) string {
	if c.Checkpoint.File.Path == "" || c.OnBus(s) {
		return ""
	}
	return filepath.Join(c.Checkpoint.File.Path, s.Name)
}

// Block returns the block that selects the sink's bus; nil if it has none, which [LoadPart] rejects.
func (s *Sink) Block() bus.Config {
	b, _ := s.block()
	return b.Config
}

// Setup returns what the bus of a sink may know.
func (c *Config) Setup(s *Sink) *bus.Setup {
	out := &bus.Setup{
		Identity: event.Identity{Bridge: c.Name, Cluster: c.Cluster, Sink: s.Name},
		Oversize: s.Oversize, Format: s.Format, Headers: s.Headers,
		Directory: c.Checkpoint.File.Path, Topic: c.Checkpoint.Kafka.Topic, Replicas: c.Checkpoint.Kafka.Replicas, Scratch: c.Checkpoint.NATS.Scratch,
	}
	for _, r := range c.ResourcesOf(s) {
		out.Resources = append(out.Resources, r.OnBus())
	}
	return out
}

// OnBus returns what a bus may know of the resource.
func (r *Resource) OnBus() bus.Resource {
	return bus.Resource{
		Name: r.Name(), Parsed: r.Parsed(), Entry: r.Entry, Resync: r.Resync,
		Topic: r.Topic, Key: r.Key, Subject: r.Subject, Headers: r.Headers,
	}
}
