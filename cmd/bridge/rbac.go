package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/bus/kafka"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/access"
)

func newRBAC() *cobra.Command {
	var (
		path           string
		buses, connect bool
		auditPolicy    bool
		options        access.BusOptions
		subject        access.Subject
		whom           bus.PermissionOptions
	)
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the permissions that the configuration needs, in the cluster or, with --bus, on the buses, or the audit policy",
		Example: "  bridge rbac -c bridge.yaml --namespace streaming | kubectl apply -f -\n" +
			"  bridge rbac --bus -c bridge.yaml --principal User:bridge\n" +
			"  bridge rbac --audit-policy -c bridge.yaml > policy.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadPart(cmd, path, cmd.Flags(), config.WithoutSecrets)
			if err != nil {
				return err
			}
			if buses && auditPolicy {
				return &exitError{exitConfig, errors.New("--bus and --audit-policy exclude each other: see bridge rbac --help")}
			}
			if connect {
				ctx, cancel := context.WithTimeout(cmd.Context(), 30*time.Second)
				defer cancel()
				if err := askCluster(ctx, c.Kubernetes, &options); err != nil {
					return &exitError{exitEnvironment, err}
				}
			}
			options.ClusterUID = cmp.Or(options.ClusterUID, c.Kubernetes.ClusterUID)
			for flag, who := range map[string]string{"principal": whom.Principal, "reader": whom.Reader} {
				if who != "" && !strings.Contains(who, ":") {
					return &exitError{exitConfig, fmt.Errorf("--%s %s: Kafka's ACLs name a user as User:%s", flag, who, who)}
				}
			}
			if buses {
				whom.ClusterUID = options.ClusterUID
				return printBuses(cmd.OutOrStdout(), c, options.ClusterOptions, whom)
			}
			if auditPolicy {
				policy, err := access.ForAudit(c, options.ClusterOptions)
				if err != nil {
					return &exitError{exitConfig, err}
				}
				return policy.WriteYAML(cmd.OutOrStdout())
			}
			options.Namespace = subject.Namespace
			need, err := access.ForCluster(c, options.ClusterOptions)
			if err != nil {
				return &exitError{exitConfig, err}
			}
			return need.WriteYAML(cmd.OutOrStdout(), roleName(c.Name), subject)
		},
	}
	configFlag(cmd, &path)
	f := cmd.Flags()
	f.BoolVar(&buses, "bus", false, "print the topics, streams and permissions that the sinks and their consumers need on Kafka and NATS")
	f.BoolVar(&auditPolicy, "audit-policy", false, "print the audit policy of the API servers by which the bridge can say who made changes, with their flags")
	f.BoolVar(&connect, "connect", false, "ask the API server to resolve resource names, and for the cluster's UID")
	f.StringVar(&subject.Namespace, "namespace", "kubebridge", "namespace of the bridge and its service account")
	f.StringVar(&subject.ServiceAccount, "service-account", "kubebridge", "service account that the bridge runs as")
	f.BoolVar(&options.Everything, "allow-everything", false, "also grant *.*: the bridge can then read everything, including Secrets")
	f.StringVar(&whom.Principal, "principal", "", "with --bus: the bridge's user in Kafka's ACLs; default: User: and sasl.username")
	f.StringVar(&whom.Reader, "reader", "User:READER", "with --bus: the consumers' user in Kafka's ACLs; these ACLs are printed last")
	f.StringVar(&options.ClusterUID, "cluster-uid", "", "with --bus: UID of the namespace kube-system, which is part of names on the bus")
	config.AddFlags(f, "name", "cluster", "kubernetes.kubeconfig", "kubernetes.context", "checkpoint.file.path")
	return cmd
}

// roleName returns the name of a bridge's roles. Two bridges in one cluster get two names.
func roleName(bridge string) string {
	if bridge == "kubebridge" {
		return bridge
	}
	return "kubebridge-" + bridge
}

// askCluster asks the API server for the facts that a configuration does not have.
func askCluster(ctx context.Context, k config.Kubernetes, o *access.BusOptions) error {
	client, err := newClient(k, zap.NewNop())
	if err != nil {
		return err
	}
	defer client.Close()
	if o.Catalog, err = client.Catalog(ctx); err != nil {
		return err
	}
	uid, err := client.ClusterUID(ctx)
	o.ClusterUID = cmp.Or(o.ClusterUID, uid)
	return err
}

func printBuses(w io.Writer, c *config.Config, o access.ClusterOptions, whom bus.PermissionOptions) error {
	if t := c.Audit.Kafka; t != nil {
		fmt.Fprintln(w, "# Audit records")
		needs := kafka.NeedsOfReader(t.Brokers, t.Topic, "audit records; there is no consumer group")
		if err := needs.WriteShell(w, kafka.Principal(&whom, t.SASL), whom.Reader); err != nil {
			return err
		}
	}
	for i := range c.Sinks {
		s := &c.Sinks[i]
		fmt.Fprintf(w, "# Sink %s\n", s.Name)
		permissions := kindOf(c, s).Permissions
		if permissions == nil {
			fmt.Fprintln(w, "# The sink writes to this machine: it needs no permissions.")
			continue
		}
		whom.Targets = func() ([]bus.Target, error) { return access.Targets(c, s, o) }
		var text strings.Builder
		if err := permissions(&text, &whom); err != nil {
			return &exitError{exitConfig, fmt.Errorf("sink %q: %w", s.Name, err)}
		}
		if _, err := io.WriteString(w, text.String()); err != nil {
			return err
		}
	}
	return nil
}
