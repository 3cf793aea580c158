package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// completionTimeout is how long a cluster may take to answer a request for shell completion.
const completionTimeout = 3 * time.Second

// values completes a flag with fixed values.
func values(all ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp)
}

// addCompletions registers shell completion for the arguments and flags of all commands below cmd. Flags and arguments with values
// that only one command has register their completion where they are defined.
func addCompletions(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		addCompletions(c)
	}
	choices := map[string]cobra.CompletionFunc{
		"log-level": values("debug", "info", "warn", "error"), "log-format": values("json", "console", "auto"),
		"color": values("auto", "always", "never"), "namespace": completeNamespaces, "sink": completeSinks, "output": outputsOf(cmd),
	}
	for name, complete := range choices {
		if cmd.Flags().Lookup(name) != nil && complete != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, complete) // an error says that the flag has one, or does not exist
		}
	}
	switch cmd.Name() {
	case "tail":
		cmd.ValidArgsFunction = completeResources
	case "history", "state", "resync", "init":
		cmd.ValidArgsFunction = completeConfigured
	case "run", "validate", "rbac", "status", "top", "show", "reset", "move", "version", "estimate":
		if cmd.ValidArgs == nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
}

// outputsOf completes -o of a command; nil: it is a file, or there is none.
func outputsOf(cmd *cobra.Command) cobra.CompletionFunc {
	switch cmd.Name() {
	case "tail", "run":
		return values(outputs()...)
	case "state":
		return values(outputYAML, stdout.JSON)
	case "init":
		return nil
	}
	return values(stdout.JSON)
}

// namedConfig is the file that --config names. Standard input cannot be read for a completion.
func namedConfig(cmd *cobra.Command) (path string, named bool) {
	path, err := cmd.Flags().GetString("config")
	return path, err == nil && path != "" && path != standardInput
}

// clusterOf is the cluster of a command's flags, or of its configuration.
func clusterOf(cmd *cobra.Command) config.Kubernetes {
	k := config.Kubernetes{}
	if path, named := namedConfig(cmd); named {
		if c, err := loadPart(cmd, path, cmd.Flags(), config.Process); err == nil {
			k = c.Kubernetes
		}
	}
	for name, to := range map[string]*string{"kubeconfig": &k.Kubeconfig, "context": &k.Context} {
		if value, err := cmd.Flags().GetString(name); err == nil && value != "" {
			*to = value
		}
	}
	return k
}

// completeResources completes with the resources that the cluster serves, or with Kubernetes' own resources if the cluster does not answer.
func completeResources(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	catalog := discovery.Builtin()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	if client, err := newClient(clusterOf(cmd), zap.NewNop()); err == nil {
		defer client.Close()
		if served, err := client.Catalog(ctx); err == nil {
			catalog = served
		}
	}
	var names []string
	for _, r := range catalog.Match(discovery.Parse("*.*")) {
		names = append(names, (&event.Collection{Group: r.Group, Resource: r.Name}).ResourceID())
	}
	return beginning(names, begun), cobra.ShellCompDirectiveNoFileComp
}

// completeConfigured completes with the resources of the configuration. Without a configuration it completes with the resources of the cluster.
func completeConfigured(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	path, named := namedConfig(cmd)
	if !named {
		return completeResources(cmd, args, begun)
	}
	c, err := loadPart(cmd, path, nil, config.WithoutSecrets)
	if err != nil {
		return completeResources(cmd, args, begun)
	}
	var names []string
	for i := range c.Sinks {
		for _, r := range c.ResourcesOf(&c.Sinks[i]) {
			if n := discovery.Parse(r.Name()); n.IsPattern() {
				return completeResources(cmd, args, begun)
			}
			names = append(names, r.Name())
		}
	}
	return beginning(names, begun), cobra.ShellCompDirectiveNoFileComp
}

func completeNamespaces(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	cfg, err := restConfig(clusterOf(cmd))
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	client, err := corev1.NewForConfig(cfg)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	list, err := client.Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		cobra.CompDebugln(fmt.Sprintf("list namespaces: %v", err), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return beginning(names, begun), cobra.ShellCompDirectiveNoFileComp
}

func completeSinks(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	path, named := namedConfig(cmd)
	if !named {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := loadPart(cmd, path, nil, config.WithoutSecrets)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range c.Sinks {
		names = append(names, c.Sinks[i].Name)
	}
	return beginning(names, begun), cobra.ShellCompDirectiveNoFileComp
}

// beginning are the names that begin with a text, sorted, each once.
func beginning(names []string, with string) []string {
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, with) })
	slices.Sort(names)
	return slices.Compact(names)
}
