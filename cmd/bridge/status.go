package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/kubebridge/internal/base/textfile"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

// defaultStatus is the address of the status if neither --address nor a configuration is given.
const defaultStatus = "127.0.0.1:8080"

// statusBytes is the largest accepted answer, enough for about 300,000 collections.
const statusBytes = 128 << 20

// statusEvery is the time between two requests with --watch.
const statusEvery = 2 * time.Second

// clearScreen clears a terminal and moves its cursor to the top.
const clearScreen = "\x1b[H\x1b[2J"

// statusTimeout bounds how long a bridge may take to answer.
const statusTimeout = 10 * time.Second

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
			if output != "" && output != "json" {
				return &exitError{exitConfig, fmt.Errorf("-o %s: json is the only other format", output)}
			}
			if err := at.find(cmd); err != nil {
				return err
			}
			print := printStatus
			if output == "json" {
				print = func(out io.Writer, _ *status.Report, body []byte) error {
					_, err := document(out).Write(body)
					return err
				}
			}
			if watch {
				return at.watch(cmd, print)
			}
			r, body, err := at.ask(cmd.Context())
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
				return at.watch(cmd, printTop)
			}
			r, body, err := at.ask(cmd.Context())
			if err != nil {
				return &exitError{exitEnvironment, at.silent(err)}
			}
			return printTop(cmd.OutOrStdout(), r, body)
		},
	}
	at.define(cmd)
	return cmd
}

// statusTarget is the address of a bridge's status, with certificates and token.
type statusTarget struct {
	config    string // path of the bridge's configuration
	address   string // host:port, also behind http:// or https://
	ca        string // PEM file; "": the system's
	cert      string // PEM file of the bridge's certificate itself, instead of its CA
	token     string
	tokenFile string // instead of token
}

// define defines the flags that locate the bridge.
func (at *statusTarget) define(cmd *cobra.Command) {
	configFlag(cmd, &at.config)
	f := cmd.Flags()
	f.StringVar(&at.address, "address", "", "the bridge's status address, host:port, http://host:port or https://host:port, instead of a configuration")
	f.StringVar(&at.ca, "ca", "", "with --address https://: PEM file of the CA of the bridge's certificate; default: the system's CAs")
	f.StringVar(&at.tokenFile, "token-file", "", "file with the token for the login to the status")
	config.AddFlags(f, "cluster", "kubernetes.kubeconfig", "kubernetes.context", "checkpoint.file.path", "status.listen")
}

// silent returns the error for a bridge that does not answer.
func (at *statusTarget) silent(err error) error {
	return fmt.Errorf("no bridge answers at %s: %w: check that the bridge is running and that its status.listen is this address, or give --address HOST:PORT", at.address, err)
}

// watch prints the status every [statusEvery] until the command is interrupted.
func (at *statusTarget) watch(cmd *cobra.Command, print func(io.Writer, *status.Report, []byte) error) error {
	out := cmd.OutOrStdout()
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		var text bytes.Buffer
		if r, body, err := at.ask(cmd.Context()); err != nil {
			show(&text, "%v; trying again", at.silent(err))
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
	if at.address != "" {
		return nil
	}
	if path == "" {
		at.address = defaultStatus
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
	at.address = net.JoinHostPort(host, port)
	if at.cert = c.Status.TLS.Cert; at.cert != "" {
		at.address = "https://" + at.address
	}
	switch {
	case at.tokenFile != "":
	case c.Status.Login.TokenFile != "":
		at.tokenFile = c.Status.Login.TokenFile
	case c.Status.Login.Kubernetes:
		cfg, err := restConfig(c.Kubernetes)
		if err != nil {
			return err
		}
		at.token, at.tokenFile = cfg.BearerToken, cfg.BearerTokenFile
	}
	return nil
}

func (at *statusTarget) ask(ctx context.Context) (*status.Report, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	address := at.address
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/api/status", nil)
	if err != nil {
		return nil, nil, err
	}
	token := at.token
	if at.tokenFile != "" {
		text, err := textfile.Read(at.tokenFile)
		if err != nil {
			return nil, nil, fmt.Errorf("read the token: %w", err)
		}
		token = strings.TrimSpace(text)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	protocol, err := at.tls()
	if err != nil {
		return nil, nil, err
	}
	// No proxy is used: the bridge runs on this machine, or its port is forwarded to this machine.
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: protocol}}).Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, statusBytes))
	if err != nil {
		return nil, nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("it answers %s: %s", answer.Status, inLine(string(body[:min(len(body), 500)])))
	}
	var r status.Report
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, nil, fmt.Errorf("the answer is not the status of a bridge: %w", err)
	}
	return &r, body, nil
}

// tls returns the TLS configuration. With the bridge's own certificate it compares the certificate instead of host
// names, since on the bridge's machine the address is an IP address.
func (at *statusTarget) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if at.ca != "" {
		text, err := os.ReadFile(at.ca)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate", at.ca)
		}
	}
	if at.cert == "" {
		return c, nil
	}
	text, err := os.ReadFile(at.cert)
	if err != nil {
		return nil, err
	}
	own, rest := pem.Decode(text)
	for own != nil && own.Type != "CERTIFICATE" {
		own, rest = pem.Decode(rest)
	}
	if own == nil {
		return nil, fmt.Errorf("%s holds no certificate", at.cert)
	}
	c.InsecureSkipVerify = true // VerifyConnection compares the certificate itself
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if !bytes.Equal(s.PeerCertificates[0].Raw, own.Bytes) {
			return fmt.Errorf("the bridge's certificate is not the one in %s", at.cert)
		}
		return nil
	}
	return c, nil
}

// printHead prints the name, version and state of a bridge.
func printHead(out io.Writer, r *status.Report) {
	show(out, "%s on %s: %s (version %s, up %s)", r.Name, r.Cluster, r.Word(), r.Version, r.At.Sub(r.Started).Round(time.Second))
	if r.Waiting != "" {
		show(out, "waiting for Kubernetes: %s", r.Waiting)
	}
	if e := r.Election; e != nil {
		show(out, "leader: %s", cmp.Or(e.Holder, "nobody"))
	}
	if text := r.Elsewhere(); text != "" {
		show(out, "%s", text)
	}
	if r.Watches > 0 {
		show(out, "open watches: %d", r.Watches)
	}
	if r.Buffer != nil {
		show(out, "disk buffer: %s", r.Buffer.Words())
	}
	if r.Audit != nil {
		show(out, "audit records: %s", inLine(r.Audit.Words(r.At)))
	}
	for i := range r.Sinks {
		if a := r.Sinks[i].Attribution; a != nil {
			show(out, "attribution, sink %s: %s", inLine(r.Sinks[i].Name), a.Words())
		}
	}
}

// printStatus prints all of a status for people.
func printStatus(out io.Writer, r *status.Report, _ []byte) error {
	printHead(out, r)
	if len(r.Sinks) == 0 && r.Elsewhere() != "" {
		return nil
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", inLine(c.ID), inLine(e.Sink.Name), inLine(cmp.Or(c.Route, "the sink's")), inLine(c.Words()), inLine(position),
			status.Seconds(c.Lag), status.Number(c.Rate), objects, inLine(c.Error))
	}
	return w.Flush()
}

// printTop prints the rates and the lags of a status, the busiest collections first.
func printTop(out io.Writer, r *status.Report, _ []byte) error {
	printHead(out, r)
	if len(r.Sinks) == 0 && r.Elsewhere() != "" {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSINK\tEVENTS/S\tLAG\tWAITING\tDELIVERED")
	for i := range r.Sinks {
		s := &r.Sinks[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\n", inLine(s.Name), status.Number(s.Rate), status.Seconds(s.Lag), s.Queue.Events, s.Delivered)
	}
	fmt.Fprintln(w, "\nCOLLECTION\tSINK\tEVENTS/S\tLAG\tDELIVERED\tSTATE")
	entries := r.Entries()
	slices.SortStableFunc(entries, func(a, b status.Entry) int {
		return cmp.Or(compareKnown(b.Collection.Rate, a.Collection.Rate), compareKnown(b.Collection.Lag, a.Collection.Lag))
	})
	for _, e := range entries {
		c := e.Collection
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", inLine(c.ID), inLine(e.Sink.Name), status.Number(c.Rate), status.Seconds(c.Lag), c.Delivered, inLine(c.Words()))
	}
	return w.Flush()
}

// compareKnown compares two numbers. nil is an unknown number, which is less than any other.
func compareKnown(a, b *float64) int {
	value := func(n *float64) float64 {
		if n == nil {
			return -1
		}
		return *n
	}
	return cmp.Compare(value(a), value(b))
}

// inLine returns text in a form for a table cell.
func inLine(text string) string {
	return stdout.Legible(strings.Join(strings.Fields(text), " "))
}
