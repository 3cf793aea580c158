package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/admin"
)

func newResync() *cobra.Command {
	var path, socket, sink string
	cmd := &cobra.Command{
		Use:   "resync RESOURCE",
		Short: "Make a running bridge publish every object of a resource again",
		Long: `Makes a running bridge publish every object of a resource again, as present. RESOURCE
is the resource with its group, or the ID of one collection. The command connects to
the admin.socket of the bridge's configuration: give the same file and flags
as for the bridge, or --socket. It needs no passwords.`,
		Example: "  bridge resync deployments.apps -c bridge.yaml\n  bridge resync secrets@payments --sink audit",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if socket == "" {
				c, err := loadPart(cmd, path, cmd.Flags(), config.Process)
				if err != nil {
					return err
				}
				if socket = c.Admin.Socket; socket == config.Off {
					return &exitError{exitConfig, fmt.Errorf("%s: admin.socket is off (the default without checkpoint.file.path): set a path and restart the bridge", path)}
				}
			}
			started, err := admin.Resync(cmd.Context(), socket, sink, args[0])
			var unknown *admin.NotFoundError
			switch {
			case errors.As(err, &unknown):
				return &exitError{exitConfig, err}
			case errors.Is(err, admin.ErrNoBridge):
				return &exitError{exitEnvironment, err}
			case err != nil:
				return err
			}
			for _, id := range started {
				terminal.Show(cmd.OutOrStdout(), "%s: resync started", id)
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&socket, "socket", "", "the bridge's admin socket, instead of a configuration")
	cmd.Flags().StringVar(&sink, "sink", "", "only for this sink")
	config.AddFlags(cmd.Flags(), "cluster", "checkpoint.file.path")
	return cmd
}
