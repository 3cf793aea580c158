package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/status"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

// defaultStatus is where the status of a bridge is that nothing else is known of.
const defaultStatus = "127.0.0.1:8080"

// statusBytes bounds what is read of an answer: some 300,000 collections.
const statusBytes = 128 << 20

// statusTimeout bounds how long a bridge may take to answer.
const statusTimeout = 10 * time.Second

func newStatus() *cobra.Command {
	var path, address, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what a running bridge is doing",
		Long: `Shows what a running bridge is doing: its sinks and every collection, those in
trouble first. The bridge is found by the status.listen of its configuration, or
--address, or at ` + defaultStatus + `. The exit code is 0 if the bridge is ready, 1 if it is
not, and 3 if it does not answer.`,
		Example: "  bridge status -c bridge.yaml\n  bridge status --address 127.0.0.1:8080 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return &exitError{exitConfig, fmt.Errorf("-o %s: json is the only other format", output)}
			}
			if address == "" {
				var err error
				if address, err = statusAddress(cmd, path); err != nil {
					return err
				}
			}
			r, body, err := askStatus(cmd.Context(), address)
			if err != nil {
				return &exitError{exitEnvironment, fmt.Errorf("no bridge answers at %s: %w: is it running, and is this its status.listen? Give --address HOST:PORT", address, err)}
			}
			if output == "json" {
				_, err = document(cmd.OutOrStdout()).Write(body)
			} else {
				err = printStatus(cmd.OutOrStdout(), r)
			}
			if err == nil && !r.Ready {
				err = errors.New("not ready")
			}
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&address, "address", "", "the bridge's status address, host:port, instead of a configuration")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for a table")
	config.AddFlags(cmd.Flags())
	return cmd
}

// statusAddress is where the bridge of a configuration can be asked from here.
func statusAddress(cmd *cobra.Command, path string) (string, error) {
	if path == "" {
		return defaultStatus, nil
	}
	c, err := loadConfig(cmd, path)
	if err != nil {
		return "", err
	}
	if c.Status.Listen == config.Off {
		return "", &exitError{exitConfig, fmt.Errorf("%s: status.listen is off: name an address and restart the bridge", path)}
	}
	host, port, err := net.SplitHostPort(c.Status.Listen)
	if err != nil {
		return "", &exitError{exitConfig, fmt.Errorf("%s: status.listen: %w", path, err)}
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

func askStatus(ctx context.Context, address string) (*status.Report, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/status", nil)
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true} // and no proxy: it is on this machine, or forwarded to it
	answer, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, statusBytes))
	if err != nil {
		return nil, nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("it answers %s", answer.Status)
	}
	var r status.Report
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, nil, fmt.Errorf("its answer is not a bridge's status: %w", err)
	}
	return &r, body, nil
}

func printStatus(out io.Writer, r *status.Report) error {
	show(out, "%s on %s: %s (version %s, up %s)", r.Name, r.Cluster, r.Word(), r.Version, r.At.Sub(r.Started).Round(time.Second))
	if r.Waiting != "" {
		show(out, "waiting for Kubernetes: %s", r.Waiting)
	}
	if e := r.Election; e != nil {
		show(out, "leader: %s", cmp.Or(e.Holder, "nobody"))
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSINK\tSTATE\tDELIVERED\tEVENTS/S\tLAG\tWAITING\tERROR")
	for i := range r.Sinks {
		s := &r.Sinks[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%d of %d\t%s\n", inLine(s.Name), s.Word(), s.Delivered,
			status.Number(s.Rate), status.Seconds(s.Lag), s.Queue.Events, s.Queue.EventCapacity, inLine(s.Failing))
	}
	fmt.Fprintln(w, "\nCOLLECTION\tSINK\tROUTE\tSTATE\tPOSITION\tLAG\tEVENTS/S\tOBJECTS\tERROR")
	for _, e := range r.Entries() {
		c := e.Collection
		objects, position := status.Unknown, status.Unknown
		if c.Objects != nil {
			objects = strconv.FormatInt(*c.Objects, 10)
		}
		if c.Position != "" {
			position = c.Position
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", inLine(c.ID), inLine(e.Sink.Name), inLine(cmp.Or(c.Route, "the sink's")), inLine(string(c.State)), inLine(position),
			status.Seconds(c.Lag), status.Number(c.Rate), objects, inLine(c.Error))
	}
	return w.Flush()
}

// inLine is text for a cell of a table.
func inLine(text string) string {
	return stdout.Legible(strings.Join(strings.Fields(text), " "))
}
