package main

import "github.com/spf13/cobra"

func newCheckpoint() *cobra.Command { return &cobra.Command{Use: "checkpoint"} }
