package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/internal/past/history/report"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

type historyFlags struct {
	which         pastFlags
	namespace     string
	since, until  string
	output, color string
}

func newHistory() *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history RESOURCE NAMESPACE/NAME | RESOURCE/NAME [-n NAMESPACE]",
		Short: "Show how an object changed, by whom and when, from the bus",
		Long: `Shows every change of an object that the bus holds, with the difference to the state
before, also if the object was deleted and created again. A state that several
collections published is shown once. The command writes nothing to the bus and leaves
no consumer or consumer group behind.`,
		Example: "  bridge history deployments.apps shop/web -c bridge.yaml\n  bridge history deploy/web -n shop --since 1h\n" +
			"  bridge history nodes worker-7 --since 2026-03-14T00:00:00Z -o json",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.which.define(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "", "the object's namespace, where its name has none")
	flags.StringVar(&f.since, "since", "", "only changes that the bridge saw at or after that time (RFC 3339, or a duration before now, such as 1h); reading starts ten minutes earlier")
	flags.StringVar(&f.until, "until", "", "only changes that the bridge saw at or before that time")
	flags.StringVarP(&f.output, "output", "o", "", "json (one object a line), or nothing for text")
	flags.StringVar(&f.color, "color", "auto", "auto, always or never")
	return cmd
}

func (f *historyFlags) run(cmd *cobra.Command, args []string) error {
	q, err := f.query(args)
	if err != nil {
		return err
	}
	p, err := f.which.open(cmd)
	if err != nil {
		return err
	}
	r, err := p.read(cmd.Context(), bus.Wanted{Resources: []discovery.Name{q.Resource}, Object: (*bus.Object)(&q.Object)})
	if err != nil {
		return err
	}
	defer r.Close()
	progress := newPastProgress(cmd.ErrOrStderr())
	var foreign ignored
	q.Reader, q.Cluster, q.Progress, q.Ignored = r, p.config.Cluster, progress.report, foreign.add
	out := cmd.OutOrStdout()
	n := 0
	encoder := json.NewEncoder(document(out))
	encoder.SetEscapeHTML(false)
	paint := f.color == "always" || f.color == "auto" && isTerminal(out)
	earliest, err := history.Changes(cmd.Context(), q, func(c history.Change) error {
		n++
		progress.end()
		if f.output == "json" {
			return encoder.Encode(c)
		}
		return report.Change(out, &c, paint)
	})
	progress.end()
	foreign.print(cmd.ErrOrStderr())
	if err != nil {
		return pastError(err)
	}
	if n == 0 {
		return &exitError{exitEnvironment, fmt.Errorf("not covered: %s %s: the bus has no event of this object%s%s", q.Resource, q.Object, reaches(earliest), p.didYouMean(q.Resource))}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s%s\n", terminal.Count(n, "change"), reaches(earliest))
	return nil
}

func (f *historyFlags) query(args []string) (q history.ChangesQuery, err error) {
	if err := checkJSON(f.output); err != nil {
		return q, err
	}
	if f.color != "auto" && f.color != "always" && f.color != "never" {
		return q, &exitError{exitConfig, fmt.Errorf("--color %s: auto, always or never", f.color)}
	}
	if q.Resource, q.Object, err = historyObject(args, f.namespace); err != nil {
		return q, err
	}
	now := time.Now()
	if q.Since, err = parseTime("--since", f.since, now); err != nil {
		return q, err
	}
	if q.Until, err = parseTime("--until", f.until, now); err != nil {
		return q, err
	}
	if f.since != "" && f.until != "" && q.Until.Before(q.Since) {
		return q, &exitError{exitConfig, fmt.Errorf("--until %s is before --since %s", f.until, f.since)}
	}
	return q, nil
}

// historyObject parses the resource and the object: RESOURCE and NAMESPACE/NAME, or RESOURCE/NAME.
func historyObject(args []string, namespace string) (resource discovery.Name, object history.Name, _ error) {
	if len(args) == 1 {
		kind, name, ok := strings.Cut(args[0], "/")
		if !ok {
			return resource, object, &exitError{exitConfig, fmt.Errorf("%q is not RESOURCE/NAME: write for example deploy/web -n shop, or deployments.apps shop/web: see bridge history --help", args[0])}
		}
		args = []string{kind, name}
		if strings.Contains(name, "/") {
			namespace, args[1], _ = strings.Cut(name, "/")
		}
	}
	names, err := resourceNames(args[:1])
	if err != nil {
		return resource, object, err
	}
	resource, object = names[0], history.ParseName(args[1])
	switch {
	case object.Name == "" || strings.Contains(object.Name, "/"):
		return resource, object, &exitError{exitConfig, fmt.Errorf("%q is not the name of an object: write NAMESPACE/NAME, or NAME if it has no namespace", args[1])}
	case object.Namespace != "" && namespace != "" && object.Namespace != namespace:
		return resource, object, &exitError{exitConfig, fmt.Errorf("-n %s: %s names another namespace", namespace, args[1])}
	case namespace != "":
		object = history.NameOf(namespace, args[1])
	}
	return resource, object, nil
}

// parseTime reads a time or a duration before now; the zero time for "".
func parseTime(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, ok := before(s, now); ok {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, &exitError{exitConfig, fmt.Errorf("%s: %q is neither a time like 2026-03-14T09:26:00Z nor a duration like 1h", flag, s)}
	}
	return t, nil
}

func reaches(earliest time.Time) string {
	if earliest.IsZero() {
		return ""
	}
	return "; the messages read go back to " + earliest.UTC().Format(time.RFC3339)
}
