package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/internal/past/history/report"
	"github.com/kubebridge/kubebridge/internal/past/history/restore"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

type stateFlags struct {
	which         pastFlags
	at, namespace string
	output        string
	partial, diff bool
	apply         bool
	kubeconfig    string
	context       string
	dryRun, force bool
	exact         bool
}

// restoreRate is the highest number of requests per second of a restore.
const restoreRate = 100

func newState() *cobra.Command {
	var f stateFlags
	cmd := &cobra.Command{
		Use:   "state --at TIME|RV [RESOURCE...] | --diff TIME TIME [RESOURCE...]",
		Short: "Rebuild the state of collections at a time from the bus",
		Long: `Rebuilds from the bus alone the objects of the collections at a time, or at a
resourceVersion (with its epoch as e2:12345). The state at a time is everything that had been
published by then; standard error names the resourceVersion that each collection had reached.
The answer is "not covered" if the bus has no complete list of a collection before that time.
The command writes nothing to the bus and leaves no consumer or consumer group behind.

With --diff it compares two times. With --apply it restores the state to the cluster of
--kubeconfig by server-side apply, after a dry run of all objects. Objects and fields
that were added later are kept and listed; --exact deletes these objects and removes these
fields. --dry-run lists what would happen to each object, and changes nothing. RBAC objects,
admission webhooks and policies, APIServices and CustomResourceDefinitions are restored only
if you name their resource.`,
		Example: `  bridge state --at 2026-03-14T09:26:00Z pods deployments.apps -n shop -c bridge.yaml
  bridge state --diff 2026-03-14T09:00:00Z 2026-03-14T10:00:00Z -n shop
  bridge state --diff 1h 10m -n shop
  bridge state --at 2026-03-14T09:26:00Z -n shop --apply --kubeconfig ~/.kube/config --dry-run`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.which.define(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.at, "at", "", "a time (RFC 3339), a duration before now such as 10m, or a resourceVersion; with --apply or alone")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "only objects in this namespace")
	flags.StringVarP(&f.output, "output", "o", "", "yaml or json; with --diff json or nothing for text")
	flags.BoolVar(&f.partial, "partial", false, "print the collections that are covered even if others are not")
	flags.BoolVar(&f.diff, "diff", false, "compare two times, which are the first two arguments")
	flags.BoolVar(&f.apply, "apply", false, "restore the state to a cluster")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "with --apply: the kubeconfig file of the cluster to restore to; required, because the bridge's own account is not used")
	flags.StringVar(&f.context, "context", "", "with --apply: the context in the kubeconfig file")
	flags.BoolVar(&f.dryRun, "dry-run", false, "with --apply: let the API server check every object, and change nothing")
	flags.BoolVar(&f.force, "force", false, "with --apply: take over fields that another field manager owns")
	flags.BoolVar(&f.exact, "exact", false, "with --apply: also delete objects and remove fields that the state does not have, even if another field manager owns them")
	return cmd
}

func (f *stateFlags) run(cmd *cobra.Command, args []string) error {
	var mistake string
	switch {
	case f.diff && (f.at != "" || f.apply):
		mistake = "--diff goes with neither --at nor --apply"
	case f.diff && len(args) < 2:
		mistake = "--diff needs two times"
	case !f.diff && f.at == "":
		mistake = "give --at, or --diff"
	case f.apply && f.kubeconfig == "":
		mistake = "--apply needs --kubeconfig: the bridge's own account is not used"
	case !f.apply && (f.kubeconfig != "" || f.context != "" || f.dryRun || f.force || f.exact):
		mistake = "--kubeconfig, --context, --dry-run, --force and --exact go with --apply"
	case f.output != "" && f.output != "json" && (f.output != "yaml" || f.diff):
		mistake = "-o " + f.output + ": json and, without --diff, yaml are the formats"
	}
	if mistake != "" {
		return &exitError{exitConfig, fmt.Errorf("%s: see %s --help", mistake, cmd.CommandPath())}
	}
	points, resources := []string{f.at}, args
	if f.diff {
		points, resources = args[:2], args[2:]
	}
	names, err := resourceNames(resources)
	if err != nil {
		return err
	}
	var at []history.Point
	for _, s := range points {
		p, err := parsePoint(s, time.Now())
		if err != nil {
			return err
		}
		at = append(at, p)
	}
	var to *rest.Config
	if f.apply { // report a wrong kubeconfig before reading a long topic
		var err error
		if to, err = f.cluster(); err != nil {
			return err
		}
	}
	p, err := f.which.open(cmd)
	if err != nil {
		return err
	}
	if f.diff {
		return f.compare(cmd, p, at[0], at[1], names)
	}
	state, err := f.rebuild(cmd, p, at[0], names)
	if err != nil {
		return err
	}
	if f.apply {
		return f.restore(cmd, p, to, state, at[0], names)
	}
	return report.State(cmd.Context(), document(cmd.OutOrStdout()), cmd.ErrOrStderr(), state, f.output)
}

// rebuild reads the state at a point, and prints its coverage to standard error.
func (f *stateFlags) rebuild(cmd *cobra.Command, p *past, at history.Point, resources []discovery.Name) (*history.State, error) {
	r, err := p.read(cmd.Context(), bus.Wanted{Resources: resources})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	progress := newPastProgress(cmd.ErrOrStderr())
	var foreign ignored
	state, err := history.Rebuild(cmd.Context(), history.Query{
		Reader: r, Cluster: p.config.Cluster, At: at, Resources: resources, Namespace: f.namespace,
		Progress: progress.report, Ignored: foreign.add,
		Whole: func(ctx context.Context) (sink.Reader, error) { return p.read(ctx, bus.Wanted{}) },
	})
	progress.end()
	foreign.print(cmd.ErrOrStderr())
	if err != nil {
		return nil, pastError(err)
	}
	if err := state.Err(); err != nil {
		if !f.partial || len(state.Collections) == 0 {
			return nil, &exitError{exitEnvironment, err}
		}
		for line := range strings.Lines(err.Error()) {
			terminal.Show(cmd.ErrOrStderr(), "%s", strings.TrimRight(line, "\n"))
		}
	}
	report.Coverage(cmd.ErrOrStderr(), state, at)
	return state, nil
}

// compare prints the differences between two states.
func (f *stateFlags) compare(cmd *cobra.Command, p *past, from, to history.Point, resources []discovery.Name) error {
	before, err := f.rebuild(cmd, p, from, resources)
	if err != nil {
		return err
	}
	after, err := f.rebuild(cmd, p, to, resources)
	if err != nil {
		return err
	}
	d, err := history.Compare(cmd.Context(), before, after)
	if err != nil {
		return pastError(err)
	}
	out := cmd.OutOrStdout()
	if f.output == "json" {
		e := json.NewEncoder(document(out))
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(d)
	}
	return report.Difference(out, d)
}

// cluster returns the client configuration of the cluster to restore to.
func (f *stateFlags) cluster() (*rest.Config, error) {
	conf, err := loadKubeconfig("--kubeconfig", config.Kubernetes{Kubeconfig: f.kubeconfig, Context: f.context})
	if err != nil {
		return nil, err
	}
	conf.QPS, conf.Burst = restoreRate, 2*restoreRate
	return conf, nil
}

func (f *stateFlags) restore(cmd *cobra.Command, p *past, to *rest.Config, s *history.State, at history.Point, resources []discovery.Name) error {
	counts := map[restore.Outcome]int{}
	out := cmd.OutOrStdout()
	encoder := json.NewEncoder(document(out))
	encoder.SetEscapeHTML(false)
	err := restore.Run(cmd.Context(), restore.Options{
		Config: to, State: s, Namespace: f.namespace, Until: s.Until(at), ByRV: at.RV != 0,
		Named: func(group, resource string) bool {
			return slices.ContainsFunc(resources, func(n discovery.Name) bool { return n.Matches(group, resource) })
		},
		DryRun: f.dryRun, Force: f.force, Exact: f.exact,
	}, func(l restore.Line) {
		counts[l.What]++
		if f.output == "json" {
			_ = encoder.Encode(l) // a failed print does not stop the restore
			return
		}
		report.Restored(out, l)
	})
	done := fmt.Sprintf("%d applied, %d deleted", counts[restore.Applied], counts[restore.Deleted])
	if f.dryRun {
		done = fmt.Sprintf("dry run: %d checked, %d unchecked", counts[restore.Checked], counts[restore.Unchecked])
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s, %d skipped, %d left, %d failed\n", done, counts[restore.Skipped], counts[restore.Left], counts[restore.Failed])
	switch {
	case errors.Is(err, restore.ErrOtherCluster):
		return &exitError{exitConfig, err}
	case err != nil && !errors.Is(err, restore.ErrFailed):
		return &exitError{exitEnvironment, err}
	}
	return err
}
