package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/encode"
	"github.com/kubebridge/kubebridge/internal/pipeline"
	"github.com/kubebridge/kubebridge/internal/plan"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

func newTail() *cobra.Command {
	var (
		kube       config.Kubernetes
		namespaces []string
		selector   string
		fields     string
		output     string
	)
	cmd := &cobra.Command{
		Use:     "tail RESOURCE...",
		Short:   "Print the changes of resources to the terminal; remembers nothing",
		Example: "  bridge tail pods deployments.apps\n  bridge tail secrets -n payments -l audit=true -o json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := stdout.Config{Format: stdout.Pretty, Color: isTerminal(cmd.OutOrStdout())}
			w := cmd.OutOrStdout()
			switch output {
			case "", stdout.Pretty:
			case stdout.JSON:
				out, w = stdout.Config{Format: output}, document(w)
			default:
				return &exitError{exitConfig, fmt.Errorf("-o %s: pretty and json are the formats", output)}
			}
			for _, name := range namespaces {
				if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
					return &exitError{exitConfig, fmt.Errorf("-n %s: this cannot be a namespace: %s", name, strings.Join(wrong, "; "))}
				}
			}
			client, err := newClient(kube)
			if err != nil {
				return err
			}
			defer client.Close()
			spec := pipeline.SinkSpec{
				SinkResources: pipeline.SinkResources{Sink: "tail"},
				Open: func(_ context.Context, id event.Identity) (sink.Sink, pipeline.OpenStore, encode.Config, error) {
					form := encode.Config{Secrets: shape.Secrets{}} // redacted: there is no key
					store, err := file.OpenMem(id)
					if err != nil {
						return nil, nil, form, err
					}
					bus, err := stdout.New(stdout.Options{Config: out, Writer: w})
					return bus, store, form, err
				},
			}
			for _, name := range args {
				spec.Entries = append(spec.Entries, plan.Entry{
					Resource: name, Namespaces: namespaces, LabelSelector: selector, FieldSelector: fields,
				})
			}
			// Who looks at a terminal would wait for what does not come by itself.
			if _, err := plan.Check(cmd.Context(), client, spec.Entries, nil); err != nil {
				return &exitError{exitEnvironment, err}
			}
			return pipeline.NewBridge(pipeline.BridgeOptions{
				Name: "tail", Cluster: "tail", Client: client, Sinks: []pipeline.SinkSpec{spec},
				Log:     newLogger("auto", zap.WarnLevel, cmd.ErrOrStderr()),
				Metrics: pipeline.NewMetrics(prometheus.NewRegistry()),
			}).Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&kube.Kubeconfig, "kubeconfig", "", "path of a kubeconfig file")
	f.StringVar(&kube.Context, "context", "", "context in the kubeconfig file")
	f.StringSliceVarP(&namespaces, "namespace", "n", nil, "namespaces, comma-separated; all of them by default")
	f.StringVarP(&selector, "selector", "l", "", "label selector")
	f.StringVar(&fields, "field-selector", "", "field selector")
	f.StringVarP(&output, "output", "o", "", "pretty (default) or json")
	return cmd
}
