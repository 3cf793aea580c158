package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"

	"github.com/spf13/pflag"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
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
	if !opts.withControllers {
		// These wait for controllers: the first refuses pods until a default service account exists, the others add
		// finalizers that nobody would take away.
		args = append(args, "--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection,PodGroupProtection")
	}
	return append(args, opts.apiServerArgs...)
}

// serveAPI runs kube-apiserver with args on listener until ctx ends; it returns nil then. Its log goes to logTo. It changes process-wide state (feature gates, logging): one call per process.
func serveAPI(ctx context.Context, args []string, listener net.Listener, logTo io.Writer) error {
	if err := stampVersion(); err != nil {
		return err
	}
	s := apioptions.NewServerRunOptions()
	s.SecureServing.Listener = listener
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
	if err := logsapi.ValidateAndApplyWithOptions(s.Logs, &streams, registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)); err != nil {
		return fmt.Errorf("kube-apiserver logging: %w", err)
	}
	// Its loopback clients use deprecated APIs on purpose.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	completed, err := s.Complete(ctx)
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

// stampVersion makes /version answer with the release of k8s.io/kubernetes this program was built from. Official builds set
// it through the linker; taken from the build information it is right with any way of building.
func stampVersion() error {
	release := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "k8s.io/kubernetes" {
				release = dep.Version
			}
		}
	}
	if release == "" {
		return errors.New("version of k8s.io/kubernetes is not in the build information: build the whole module, not single files")
	}
	registry := compatibility.DefaultComponentGlobalsRegistry
	registry.Reset()
	err := registry.Register(basecompatibility.DefaultKubeComponent,
		stampedVersion{compatibility.DefaultBuildEffectiveVersion(), release}, utilfeature.DefaultMutableFeatureGate)
	if err != nil {
		return fmt.Errorf("stamp version: %w", err)
	}
	return nil
}

// stampedVersion is an effective version that knows its release.
type stampedVersion struct {
	basecompatibility.MutableEffectiveVersion
	release string
}

// Info is what /version serves.
func (v stampedVersion) Info() *apiversion.Info {
	info := v.MutableEffectiveVersion.Info()
	if info != nil {
		info.GitVersion, info.GitCommit, info.GitTreeState = v.release, "", ""
	}
	return info
}
