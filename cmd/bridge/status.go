package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/internal/operate/status/console"
)

// defaultStatus is the address of the status if neither --address nor a configuration is given.
const defaultStatus = "127.0.0.1:8080"

// statusEvery is the time between two requests with --watch.
const statusEvery = 2 * time.Second

// clearScreen clears a terminal and moves its cursor to the top.
const clearScreen = "\x1b[H\x1b[2J"

func newStatus() *cobra.Command {
	var (
		at     statusTarget
		output string
		watch  bool
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what a running bridge is doing",
		Long: `Shows what a running bridge is doing: its sinks and every collection, collections with
problems first. The address of the bridge is --address, or status.listen of its
configuration, or ` + defaultStatus + `. The certificate and the token of the login also come from
the configuration. The exit code is 0 if the bridge is ready, 1 if it is
not ready, and 3 if it does not answer.`,
		Example: "  bridge status -c bridge.yaml\n  bridge status --watch\n  bridge status --address http://127.0.0.1:8080 -o json\n" +
			"  bridge status --address https://bridge.example.com --ca ca.crt --token-file token",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkJSON(output); err != nil {
				return err
			}
			if err := at.find(cmd); err != nil {
				return err
			}
			print := console.Print
			if output == "json" {
				print = func(out io.Writer, _ *status.Report, body []byte) error {
					_, err := document(out).Write(body)
					return err
				}
			}
			if watch {
				return at.watch(cmd, print)
			}
			r, body, err := at.Ask(cmd.Context())
			if err != nil {
				return &exitError{exitEnvironment, at.silent(err)}
			}
			if err = print(cmd.OutOrStdout(), r, body); err == nil && !r.Ready {
				err = errors.New("not ready")
			}
			return err
		},
	}
	at.define(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for a table")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "refresh every two seconds")
	return cmd
}

func newTop() *cobra.Command {
	var at statusTarget
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the rate and the lag of each collection of a running bridge",
		Long: `Shows the rate and the lag of each collection of a running bridge, the busiest first. On a
terminal the table refreshes every two seconds; otherwise it is printed once. The command finds the
bridge as bridge status does.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := at.find(cmd); err != nil {
				return err
			}
			if isTerminal(cmd.OutOrStdout()) {
				return at.watch(cmd, console.PrintRates)
			}
			r, body, err := at.Ask(cmd.Context())
			if err != nil {
				return &exitError{exitEnvironment, at.silent(err)}
			}
			return console.PrintRates(cmd.OutOrStdout(), r, body)
		},
	}
	at.define(cmd)
	return cmd
}

// statusTarget is the address of a bridge's status, with certificates and token.
type statusTarget struct {
	console.Target
	config string // path of the bridge's configuration
}

// define defines the flags that locate the bridge.
func (at *statusTarget) define(cmd *cobra.Command) {
	configFlag(cmd, &at.config)
	f := cmd.Flags()
	f.StringVar(&at.Address, "address", "", "the bridge's status address, host:port, http://host:port or https://host:port, instead of a configuration")
	f.StringVar(&at.CA, "ca", "", "with --address https://: PEM file of the CA of the bridge's certificate; default: the system's CAs")
	f.StringVar(&at.TokenFile, "token-file", "", "file with the token for the login to the status")
	config.AddFlags(f, "cluster", "kubernetes.kubeconfig", "kubernetes.context", "checkpoint.file.path", "status.listen")
}

// silent returns the error for a bridge that does not answer.
func (at *statusTarget) silent(err error) error {
	return fmt.Errorf("no bridge answers at %s: %w: check that the bridge is running and that its status.listen is this address, or give --address HOST:PORT", at.Address, err)
}

// watch prints the status every [statusEvery] until the command is interrupted.
func (at *statusTarget) watch(cmd *cobra.Command, print func(io.Writer, *status.Report, []byte) error) error {
	out := cmd.OutOrStdout()
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		var text bytes.Buffer
		if r, body, err := at.Ask(cmd.Context()); err != nil {
			terminal.Show(&text, "%v; trying again", at.silent(err))
		} else if err := print(&text, r, body); err != nil {
			return err
		}
		if cmd.Context().Err() != nil {
			return nil
		}
		if isTerminal(out) {
			fmt.Fprintf(out, "%s", clearScreen)
		}
		if _, err := out.Write(text.Bytes()); err != nil {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

// find takes the address of the bridge from its configuration, unless an address is given.
func (at *statusTarget) find(cmd *cobra.Command) error {
	path := at.config
	if at.Address != "" {
		return nil
	}
	if path == "" {
		at.Address = defaultStatus
		return nil
	}
	c, err := loadPart(cmd, path, cmd.Flags(), config.Process)
	if err != nil {
		return err
	}
	if c.Status.Listen == config.Off {
		return &exitError{exitConfig, fmt.Errorf("%s: status.listen is off: set an address and restart the bridge", path)}
	}
	host, port, err := net.SplitHostPort(c.Status.Listen)
	if err != nil {
		return &exitError{exitConfig, fmt.Errorf("%s: status.listen: %w", path, err)}
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	at.Address = net.JoinHostPort(host, port)
	if at.Cert = c.Status.TLS.Cert; at.Cert != "" {
		at.Address = "https://" + at.Address
	}
	switch {
	case at.TokenFile != "":
	case c.Status.Login.TokenFile != "":
		at.TokenFile = c.Status.Login.TokenFile
	case c.Status.Login.Kubernetes:
		cfg, err := restConfig(c.Kubernetes)
		if err != nil {
			return err
		}
		at.Token, at.TokenFile = cfg.BearerToken, cfg.BearerTokenFile
	}
	return nil
}
