package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	texts "text/template"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// firstConfig is what `bridge init` writes.
const firstConfig = `# The configuration of kubebridge. Check it:        bridge validate -c FILE
# See what it publishes, without publishing:        bridge run --dry-run -c FILE
# See what it costs:                                bridge estimate -c FILE
# What a key means:                                 bridge explain KEY

# The name of the cluster in every event, topic and subject. Give each cluster its own.
cluster: {{.Cluster}}

# What is published: names as kubectl has them. "*.apps" is an API group, "*.*" everything.
resources:
{{- range .Resources}}
  - {{.}}
{{- end}}
# Options of a resource:
#  - resource: pods
#    namespaces: [shop, payments]    # default: all
#    labelSelector: app=web
#    filter: object.status.phase != "Succeeded"
#    ignore: [status-heartbeats]     # changes that do not matter
#    diff: patch                     # say what changed

sinks:
{{- if .Kafka}}
  - name: kafka
    kafka:
      brokers: [{{.Kafka}}]
      # topic: k8s.{cluster}.{group}.{resource}      # the default
      # tls: {enabled: true}
      # sasl: {mechanism: SCRAM-SHA-512, username: kubebridge, password: "${env:KAFKA_PASSWORD}"}
      # The checkpoint is kept in Kafka, in the transactions that carry the events: exactly once.
{{- end}}
{{- if .NATS}}
  - name: nats
    nats:
      url: {{.NATS}}
      # One of these logins:
      # auth: {username: kubebridge, password: "${env:NATS_PASSWORD}"}
      # auth: {token: "${env:NATS_TOKEN}"}
      # auth: {nkey: /path/to/user.nk}         # the seed of a user
      # auth: {creds: /path/to/user.creds}     # JWT and seed
      # tls: {ca: /path/to/ca.crt}
      # The checkpoint is kept in a bucket on the same NATS. JetStream must be on.
{{- end}}
{{- if .Print}}
  # Events are printed to the terminal. There is no checkpoint: every start publishes all objects again.
  - name: print
    stdout: {format: pretty}
{{- end}}

# Values of Secrets are hidden: hashed if there is a key, redacted otherwise.
# secrets: {hashKeyFile: /path/to/key}
`

type initFlags struct {
	cluster, output string
	kafka           []string
	nats            string
}

func newInit() *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init [RESOURCE...]",
		Short: "Write a first configuration, with comments",
		Long: `Writes a first configuration to standard output, or to a new file with -o. An existing
file is not overwritten. If you name no resources, it has pods, deployments.apps and services. Without
--kafka and --nats, the configuration prints events to the terminal.`,
		Example: "  bridge init pods deployments.apps --kafka kafka:9092 -o bridge.yaml\n  bridge init --nats nats://nats:4222 > bridge.yaml",
		Args:    cobra.ArbitraryArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.kafka, "kafka", nil, "addresses of Kafka brokers, host:port, comma-separated")
	flags.StringVar(&f.nats, "nats", "", "address of a NATS server, nats://host:port")
	flags.StringVar(&f.cluster, "cluster", "", "name of the cluster; default: from the name of the kubeconfig's current context")
	flags.StringVarP(&f.output, "output", "o", "", "file to create; default: standard output")
	return cmd
}

func (f *initFlags) run(cmd *cobra.Command, resources []string) error {
	if len(resources) == 0 {
		resources = []string{"pods", "deployments.apps", "services"}
	}
	text, err := f.text(resources)
	if err != nil {
		return err
	}
	if f.output == "" || f.output == "-" {
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	if err := createFile(f.output, text); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: written; next: bridge run --dry-run -c %s\n", f.output, f.output)
	return err
}

// text is a configuration that `bridge validate` accepts.
func (f *initFlags) text(resources []string) ([]byte, error) {
	quoted := func(list []string) (out []string) {
		for _, s := range list {
			out = append(out, quote(s))
		}
		return out
	}
	var text bytes.Buffer
	err := texts.Must(texts.New("").Parse(firstConfig)).Execute(&text, map[string]any{
		"Cluster": quote(cmp.Or(f.cluster, contextName(), "my-cluster")), "Resources": quoted(resources),
		"Kafka": strings.Join(quoted(f.kafka), ", "), "NATS": f.natsURL(), "Print": len(f.kafka) == 0 && f.nats == "",
	})
	if err != nil {
		return nil, err
	}
	for _, n := range discovery.ParseAll(resources) {
		if err := n.Check(); err != nil {
			return nil, &exitError{exitConfig, err}
		}
	}
	if _, err := config.Parse("the new configuration", text.Bytes(), nil); err != nil {
		return nil, &exitError{exitConfig, err}
	}
	return text.Bytes(), nil
}

// natsURL is the address of the NATS server with its scheme.
func (f *initFlags) natsURL() string {
	switch {
	case f.nats == "":
		return ""
	case !strings.Contains(f.nats, "://"):
		return quote("nats://" + f.nats)
	}
	return quote(f.nats)
}

// bareWord matches texts that need no quotes in YAML, in a list or alone.
var bareWord = regexp.MustCompile(`^[a-z][a-zA-Z0-9./:_-]*[a-zA-Z0-9]$`)

// quote writes a text in YAML.
func quote(text string) string {
	if bareWord.MatchString(text) && !strings.Contains(text, ": ") {
		return text
	}
	return fmt.Sprintf("%q", text)
}

var notInName = regexp.MustCompile(`[^a-z0-9.-]+`)

// contextName derives a cluster name from the current context of the kubeconfig; "" if there is no current context.
func contextName() string {
	raw, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	if err != nil {
		return ""
	}
	name := notInName.ReplaceAllString(strings.ToLower(raw.CurrentContext), "-")
	return strings.Trim(name[:min(len(name), 63)], "-.")
}

// createFile writes a file that does not exist yet.
func createFile(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return &exitError{exitConfig, fmt.Errorf("%s exists and is not overwritten: name another file with -o", path)}
	case err != nil:
		return &exitError{exitEnvironment, err}
	}
	_, err = io.Copy(file, bytes.NewReader(text))
	return errors.Join(err, file.Close())
}
