package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

type tailFlags struct {
	kube       config.Kubernetes
	config     string
	namespaces []string
	all        bool
	selector   string
	fields     string
	output     string
	watchOnly  bool
}

func newTail() *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail RESOURCE... | -c FILE",
		Short: "Print the changes of resources to the terminal, without a bus and a checkpoint",
		Long: `Prints the changes of resources, or what a configuration would publish. It publishes
nothing and keeps no checkpoint. With a configuration it also prints the topic or subject, key
and headers of each event: see bridge run --dry-run.`,
		Example: "  bridge tail pods deployments.apps\n  bridge tail secrets -n payments -l audit=true -o json\n" +
			"  bridge tail pods --watch-only -o name\n  bridge tail -c bridge.yaml",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	configFlag(cmd, &f.config)
	flags := cmd.Flags()
	flags.StringVar(&f.kube.Kubeconfig, "kubeconfig", "", "path of a kubeconfig file")
	flags.StringVar(&f.kube.Context, "context", "", "context in the kubeconfig file")
	flags.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "namespaces, comma-separated; default: all namespaces")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "all namespaces, which is the default")
	flags.StringVarP(&f.selector, "selector", "l", "", "label selector")
	flags.StringVar(&f.fields, "field-selector", "", "field selector")
	flags.StringVarP(&f.output, "output", "o", "", "pretty (default), json, yaml (default with -c) or name")
	flags.BoolVarP(&f.watchOnly, "watch-only", "w", false, "leave out the objects that exist at the start")
	return cmd
}

func (f *tailFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.check(cmd, args); err != nil {
		return err
	}
	log := newLogger("auto", zap.WarnLevel, cmd.ErrOrStderr())
	if len(args) == 0 {
		c, err := loadConfig(cmd, f.config)
		if err != nil {
			return err
		}
		d := dryRun{config: c, log: log, watchOnly: f.watchOnly}
		return d.printed(cmd.Context(), cmp.Or(f.output, outputYAML), cmd.OutOrStdout())
	}
	client, err := newClient(f.kube, log)
	if err != nil {
		return err
	}
	defer client.Close()
	spec := f.spec(cmd.OutOrStdout(), args)
	// Fail at once if a resource is not served: a user at a terminal would wait for events that do not come.
	if _, err := plan.Check(cmd.Context(), client, spec.Entries, nil); err != nil {
		return &exitError{exitEnvironment, err}
	}
	return bridge.New(bridge.Options{
		Name: "tail", Cluster: "tail", Client: client, Sinks: []bridge.SinkSpec{spec},
		Log: log, Metrics: bridge.NewMetrics(prometheus.NewRegistry()),
	}).Run(cmd.Context())
}

// check checks the flags that can be checked without a cluster.
func (f *tailFlags) check(cmd *cobra.Command, args []string) error {
	flags := cmd.Flags()
	selects := len(f.namespaces) > 0 || f.all || f.selector != "" || f.fields != ""
	var mistake error
	switch {
	case len(args) == 0 && f.config == "":
		mistake = errors.New("bridge tail needs RESOURCE..., for example pods, or -c FILE")
	case len(args) > 0 && flags.Changed("config"):
		mistake = fmt.Errorf("bridge tail takes resources or -c FILE, not both: %s has its own resources", f.config)
	case len(args) == 0 && selects:
		mistake = fmt.Errorf("-n, -A, -l and --field-selector need RESOURCE... and do not work with -c: set the selection in the configuration %s", f.config)
	case f.all && len(f.namespaces) > 0:
		mistake = errors.New("-A and -n exclude each other")
	}
	if mistake != nil {
		return &exitError{exitConfig, fmt.Errorf("%w: see bridge tail --help", mistake)}
	}
	for _, name := range f.namespaces {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return &exitError{exitConfig, fmt.Errorf("-n %s: not a valid namespace name: %s", name, strings.Join(wrong, "; "))}
		}
	}
	return checkOutput(cmp.Or(f.output, stdout.Pretty))
}

// spec describes a sink that prints the changes of resources.
func (f *tailFlags) spec(w io.Writer, resources []string) bridge.SinkSpec {
	output := cmp.Or(f.output, stdout.Pretty)
	color := output == stdout.Pretty && isTerminal(w)
	if output != stdout.Pretty {
		w = document(w)
	}
	spec := bridge.SinkSpec{
		SinkResources: bridge.SinkResources{Sink: "tail"},
		Open: func(_ context.Context, id event.Identity) (sink.Sink, bridge.OpenStore, encode.Config, error) {
			var form encode.Config // values of Secrets are redacted: there is no key
			store, err := file.OpenMem(id)
			if err != nil {
				return nil, nil, form, err
			}
			bus, err := stdout.New(stdout.Options{
				Writer: w, Render: renderer(output, color, func(r *event.Record) []byte { return r.Value }),
			})
			return bus, store, form, err
		},
	}
	for _, name := range resources {
		spec.Entries = append(spec.Entries, plan.Entry{
			Resource: name, Namespaces: f.namespaces, LabelSelector: f.selector, FieldSelector: f.fields,
			Options: bridge.CollectionOptions{Settings: encode.Settings{SkipSnapshot: f.watchOnly}},
		})
	}
	return spec
}
