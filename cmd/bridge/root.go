package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// The exit codes of the program.
const (
	exitOK          = 0
	exitRuntime     = 1 // the run ended with an error, for example because another bridge took over
	exitConfig      = 2 // flags or the configuration are wrong
	exitEnvironment = 3 // something outside the configuration is wrong: credentials, a certificate, a foreign checkpoint, an unusable topic
)

// streams are the program's name, its standard streams, and its SIGHUPs.
type streams struct {
	program  string    // the path of the executable; "": bridge
	out, err io.Writer // several goroutines may write to err at once
	in       io.Reader
	hangUps  <-chan os.Signal // nil: none
	// setLibraryLog makes libraries log to the program's log. It may be called once in a process. nil: they log as they do.
	setLibraryLog func(*zap.Logger)
}

// exitError carries the exit code of an error.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// execute runs the command line and returns the exit code. It prints errors to standard error, one line each.
func execute(ctx context.Context, args []string, std streams) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	root := newRoot(&std)
	if strings.HasPrefix(filepath.Base(std.program), "kubectl-") { // kubectl finds its plugins by that name
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl bridge"}
		for _, c := range root.Commands() {
			c.Example = strings.TrimPrefix(strings.ReplaceAll("\n"+c.Example, "\n  bridge ", "\n  kubectl bridge "), "\n")
		}
	}
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		if cmd.Name() != "run" { // run reloads on SIGHUP; every other command ends when the terminal is closed
			go func() {
				select {
				case <-std.hangUps:
					cancel()
				case <-ctx.Done():
				}
			}()
		}
	}
	root.SetArgs(args)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetIn(std.in)
	root.InitDefaultCompletionCmd() // it keeps the output that is set at this point
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() { // cobra's own commands accept any argument and print help with code 0
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = usage(c.Args), func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		case "help":
			c.Args = func(cmd *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return &exitError{exitConfig, fmt.Errorf("there is no help on %q: see %s --help", strings.Join(args, " "), root.Name())}
				}
				return nil
			}
		}
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	for line := range strings.Lines(err.Error()) {
		terminal.Show(std.err, "bridge: %s", strings.TrimRight(line, "\n"))
	}
	if errors.Is(err, sink.ErrFenced) || errors.Is(err, checkpoint.ErrFenced) {
		fmt.Fprintln(std.err, "bridge: two bridges with one `name` write to one bus: stop one, give it another name, or let them elect a leader (leaderElection); after `bridge checkpoint reset` start this one again, after `bridge checkpoint move` start one with the other configuration")
	}
	return exitCode(err)
}

func exitCode(err error) int {
	var (
		exit        *exitError
		mistakes    config.Errors
		mistake     *plan.ConfigError
		environment *plan.EnvironmentError
		refused     *sink.RefusedError
	)
	switch {
	case errors.As(err, &exit):
		if errors.As(exit.err, new(*exitError)) { // the first one knows the cause
			return exitCode(exit.err)
		}
		return exit.code
	case errors.As(err, &mistakes), errors.As(err, &mistake):
		return exitConfig
	case errors.As(err, &environment), errors.As(err, &refused):
		return exitEnvironment
	default:
		return exitRuntime
	}
}

// newRoot returns the command line. A signal from std.hangUps makes `run` reload its configuration.
func newRoot(std *streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "bridge",
		Short:         "Kubernetes to Kafka or NATS, without gaps",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       currentVersion().String(),
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("bridge {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &exitError{exitConfig, fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())}
	})
	root.AddCommand(
		newRun(std), newTail(), newInit(), newValidate(), newExplain(), newRBAC(), newResync(), newCheckpoint(), newStatus(), newTop(), newEstimate(),
		newSchema(), newState(), newHistory(), newServe(), newVersion(),
	)
	for _, c := range root.Commands() {
		c.Args = usage(c.Args)
	}
	root.Args = usage(root.Args)
	addCompletions(root)
	return root
}

// usage turns wrong arguments into a configuration error that names the accepted arguments.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	if check == nil {
		return nil
	}
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		_, takes, _ := strings.Cut(cmd.Use, " ")
		given := strings.Join(args, " ")
		switch {
		case cmd.HasSubCommands():
			err = unknownCommand(cmd, given)
		case takes != "" && len(args) == 0:
			err = fmt.Errorf("%s needs %s", cmd.CommandPath(), takes)
		case takes != "":
			err = fmt.Errorf("%s takes %s, not %q", cmd.CommandPath(), takes, given)
		case cmd.Flags().Lookup("config") != nil:
			err = fmt.Errorf("%s takes no arguments, but %q is one (a configuration file is given with -c)", cmd.CommandPath(), given)
		default:
			err = fmt.Errorf("%s takes no arguments, but %q is one", cmd.CommandPath(), given)
		}
		return &exitError{exitConfig, fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())}
	}
}

// unknownCommand returns an error that suggests the command nearest to a misspelt one.
func unknownCommand(cmd *cobra.Command, given string) error {
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	verb, _, _ := strings.Cut(given, " ")
	if near := discovery.Nearest(verb, known, max(1, len(verb)/3)); near != "" {
		return fmt.Errorf("unknown command %q for %q; did you mean %q?", given, cmd.CommandPath(), near)
	}
	return fmt.Errorf("unknown command %q for %q", given, cmd.CommandPath())
}

// configFlag defines -c. The default is the environment variable KUBEBRIDGE_CONFIG.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", os.Getenv("KUBEBRIDGE_CONFIG"), "configuration file, or - for standard input (KUBEBRIDGE_CONFIG)")
}

// standardInput is the path of a configuration that is read from standard input.
const standardInput = "-"

// loadConfig reads the file that -c names. The command's flags override its settings.
func loadConfig(cmd *cobra.Command, path string) (*config.Config, error) {
	return loadPart(cmd, path, cmd.Flags(), config.Whole)
}

// loadWith is loadConfig with the given flags; nil: no flags.
func loadWith(cmd *cobra.Command, path string, flags *pflag.FlagSet) (*config.Config, error) {
	return loadPart(cmd, path, flags, config.Whole)
}

// loadPart is loadWith for a command that uses a part of the configuration.
func loadPart(cmd *cobra.Command, path string, flags *pflag.FlagSet, part config.Part) (*config.Config, error) {
	if path == "" {
		return nil, &exitError{exitConfig, errors.New("no configuration: give -c FILE or set KUBEBRIDGE_CONFIG")}
	}
	type loaded struct {
		config *config.Config
		err    error
	}
	done := make(chan loaded, 1)
	ctx, in := cmd.Context(), cmd.InOrStdin()
	go func() { // a read from a pipe without a writer does not return
		c, err := readConfig(path, in, flags, part)
		done <- loaded{c, err}
	}()
	select {
	case l := <-done:
		if l.err != nil {
			return nil, &exitError{exitConfig, l.err}
		}
		return l.config, nil
	case <-ctx.Done():
		return nil, errors.New("interrupted while the configuration was read")
	}
}

// readConfig reads a file, or standard input.
func readConfig(path string, in io.Reader, flags *pflag.FlagSet, part config.Part) (*config.Config, error) {
	if path != standardInput {
		return config.LoadPart(path, flags, part)
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("read the configuration from standard input: %w", err)
	}
	return config.ParsePart("standard input", text, flags, part)
}
