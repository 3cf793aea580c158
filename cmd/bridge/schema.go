package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kubebridge/kubebridge/docs/schemas"
)

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema config|event",
		Short: "Print the JSON Schema of the configuration file, or of the events",
		Long: `Print the JSON Schema (draft 2020-12) of the configuration file, for editors and
checks before a commit, or of the events, for consumers.`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []cobra.Completion{"config", "event"},
		RunE: func(cmd *cobra.Command, args []string) error {
			text := schemas.Config()
			if args[0] == "event" {
				text = schemas.Event()
			}
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
}
