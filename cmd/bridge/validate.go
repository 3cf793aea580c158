package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/config"
)

func newValidate() *cobra.Command {
	var (
		path      string
		connect   bool
		reachable bool
	)
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration, and with --connect the cluster and the buses it names",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd, path)
			if err != nil {
				return err
			}
			for _, w := range c.Warnings() {
				terminal.Show(cmd.ErrOrStderr(), "bridge: warning: %s", w)
			}
			if connect || reachable {
				known, weak, err := checkCluster(cmd.Context(), c, !reachable)
				if known.ClusterUID != "" && !reachable {
					more, bad := checkBuses(cmd.Context(), c, known)
					weak, err = append(weak, more...), errors.Join(err, bad)
				}
				for _, w := range weak {
					terminal.Show(cmd.ErrOrStderr(), "bridge: warning: %s", w)
				}
				if err != nil {
					return &exitError{exitEnvironment, err}
				}
			}
			n, shared := 0, 0
			for i := range c.Sinks {
				if own := c.Sinks[i].Resources; len(own) > 0 {
					n += len(own)
				} else {
					shared = len(c.Resources)
				}
			}
			n += shared
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok: %s, %s\n", path, terminal.Count(n, "resource"), terminal.Count(len(c.Sinks), "sink"))
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&connect, "connect", false, "also check the cluster, every resource and the buses by asking them; writes nothing")
	cmd.Flags().BoolVar(&reachable, "reachable-only", false, "with --connect: ask only whether the cluster answers")
	config.AddFlags(cmd.Flags())
	return cmd
}
