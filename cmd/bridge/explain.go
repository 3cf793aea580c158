package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubebridge/kubebridge/docs/schemas"
	"github.com/kubebridge/kubebridge/internal/config/explain"
)

func newExplain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [KEY]",
		Short: "Print what a key of the configuration means, its default and its values",
		Long: `Prints what a key of the configuration means, its type, its default, its values and
the keys below it. KEY is a whole path or the end of a path: sinks.kafka.topic, kafka.topic or topic.
Without KEY it prints the keys of the first level.`,
		Example: "  bridge explain sinks.kafka.topic\n  bridge explain oversize\n  bridge explain checkpoint",
		Args:    cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			all, err := explain.Settings(schemas.Config())
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return explain.Paths(all), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := explain.Settings(schemas.Config())
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if len(args) == 0 {
				return explain.PrintBelow(out, all, "")
			}
			found, err := explain.Find(all, args[0])
			if err != nil {
				return &exitError{exitConfig, err}
			}
			for i := range found {
				if i > 0 {
					fmt.Fprintln(out)
				}
				if err := found[i].Print(out, all); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
