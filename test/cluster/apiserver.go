package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	apioptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// apiServerArgs is the command line a kube-apiserver of its own would be given. The user's arguments come last: for most
// flags the last one wins, lists are appended to.
func apiServerArgs(opts options, p ports, pki pki) []string {
	args := []string{
		fmt.Sprintf("--v=%d", opts.logLevel),
		"--event-ttl=" + opts.eventTTL.String(),

		"--etcd-servers=" + p.etcdURL(),
		fmt.Sprintf("--secure-port=%d", p.Server),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		// Endpoints must not be loopback addresses, so nothing could be announced.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/16",

		"--tls-cert-file=" + pki.cert("server"),
		"--tls-private-key-file=" + pki.key("server"),
		"--client-ca-file=" + pki.cert("ca"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki.key("sa"),
		"--service-account-signing-key-file=" + pki.key("sa"),
		"--requestheader-client-ca-file=" + pki.cert("front-proxy-ca"),
		"--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pki.cert("front-proxy"),
		"--proxy-client-key-file=" + pki.key("front-proxy"),

		// Watches end when a stop is asked for. Without this the server would wait a minute for them.
		"--shutdown-watch-termination-grace-period=2s",

		"--authorization-mode=RBAC",
		"--allow-privileged=true",
	}
	return append(args, opts.apiServerArgs...)
}

// serveAPI runs kube-apiserver with args on listener until ctx ends; it returns nil then. Its log goes to logTo. It changes
// process-wide state (feature gates, logging): one call per process.
func serveAPI(ctx context.Context, opts options, args []string, listener net.Listener, logTo io.Writer) error {
	s := apioptions.NewServerRunOptions()
	s.SecureServing.Listener = listener
	if !opts.withControllers {
		args = append(disablePlugins(s), args...)
	}
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	named := s.Flags()
	for _, set := range named.FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("kube-apiserver flags: %w", err)
	}

	registry := s.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := registry.Set(); err != nil {
		return fmt.Errorf("kube-apiserver feature gates: %w", err)
	}
	streams := logsapi.LoggingOptions{ErrorStream: logTo, InfoStream: logTo}
	if err := logsapi.ValidateAndApplyWithOptions(s.Logs, &streams, utilfeature.DefaultFeatureGate); err != nil {
		return fmt.Errorf("kube-apiserver logging: %w", err)
	}
	// Its loopback clients use deprecated APIs on purpose.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	completed, err := complete(ctx, s)
	if err != nil {
		return fmt.Errorf("kube-apiserver options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("kube-apiserver options: %w", errors.Join(errs...))
	}
	if err := app.Run(ctx, completed); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	return nil
}

// disablePlugins is the flag that turns off the admission plugins that wait for controllers:
// ServiceAccount refuses pods until a default service account exists, the others add finalizers that nobody would take
// away. A release refuses the name of a plugin that it does not have.
func disablePlugins(s *apioptions.ServerRunOptions) []string {
	known := s.Admission.GenericAdmission.Plugins.Registered()
	plugins := []string{"ServiceAccount", "StorageObjectInUseProtection", "PodGroupProtection"}
	plugins = slices.DeleteFunc(plugins, func(name string) bool { return !slices.Contains(known, name) })
	return []string{"--disable-admission-plugins=" + strings.Join(plugins, ",")}
}

// complete is the options' method Complete, which in Kubernetes 1.31 takes no context.
func complete(ctx context.Context, s any) (apioptions.CompletedOptions, error) {
	if s, ok := s.(interface {
		Complete() (apioptions.CompletedOptions, error)
	}); ok {
		return s.Complete()
	}
	return s.(interface {
		Complete(ctx context.Context) (apioptions.CompletedOptions, error)
	}).Complete(ctx)
}
