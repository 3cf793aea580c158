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

// apiServerArgs returns the command line of kube-apiserver. The user's arguments come last: for most flags the last value counts; values
// of list flags are added.
func apiServerArgs(opts options, p ports, pki pki) []string {
	etcd := p.etcdURL()
	if opts.etcdURL != "" {
		etcd = opts.etcdURL
	}
	args := []string{
		fmt.Sprintf("--v=%d", opts.logLevel),
		"--event-ttl=" + opts.eventTTL.String(),

		"--etcd-servers=" + etcd,
		fmt.Sprintf("--secure-port=%d", p.Server),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		// The API server has only a loopback address, which Endpoints must not contain.
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

		// When the server stops, it ends all watches. Without this flag it would wait a minute for them.
		"--shutdown-watch-termination-grace-period=2s",

		"--authorization-mode=RBAC",
		"--allow-privileged=true",
	}
	return append(args, opts.apiServerArgs...)
}

// serveAPI runs kube-apiserver with args on listener until ctx is cancelled, and then returns nil. The server's log goes to logTo. Call
// serveAPI only once per process, because it changes process-wide state: feature gates and logging.
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
	// The server's own loopback clients use deprecated APIs on purpose.
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

// disablePlugins returns the flag that disables the admission plugins that need controllers: ServiceAccount refuses pods until a default
// service account exists, and the others add finalizers that no controller would remove. The flag names only plugins that this release has,
// because kube-apiserver refuses other names.
func disablePlugins(s *apioptions.ServerRunOptions) []string {
	known := s.Admission.GenericAdmission.Plugins.Registered()
	plugins := []string{"ServiceAccount", "StorageObjectInUseProtection", "PodGroupProtection"}
	plugins = slices.DeleteFunc(plugins, func(name string) bool { return !slices.Contains(known, name) })
	return []string{"--disable-admission-plugins=" + strings.Join(plugins, ",")}
}

// complete calls the method Complete of the options, which takes no context in Kubernetes 1.31.
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
