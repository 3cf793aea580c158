package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubebridge/kubebridge/internal/config"
)

var (
	// errKubeconfigAbsent is returned when none of the kubeconfig files exists.
	errKubeconfigAbsent = errors.New("there is no such file")
	// errKubeconfigEmpty is returned when the kubeconfig has no clusters, contexts or users.
	errKubeconfigEmpty = errors.New("it is empty")
)

// restConfig returns how the bridge reaches the cluster. The first that applies decides:
//
//	kubernetes.kubeconfig is set                that file
//	KUBECONFIG is set                           these files
//	~/.kube/config has something, or a context  that file
//	is named
//	otherwise                                   the service account of the pod
//
// A file that cannot be used is an error. It never leads to the cluster of the pod, as it does in client-go.
func restConfig(k config.Kubernetes) (*rest.Config, error) {
	if k.Kubeconfig != "" {
		return loadKubeconfig("kubernetes.kubeconfig", k)
	}
	cfg, err := clusterOfKubeconfig(k)
	env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	none := errors.Is(err, errKubeconfigAbsent) || errors.Is(err, errKubeconfigEmpty)
	switch {
	case err == nil:
		return cfg, nil
	case env != "":
		err = fmt.Errorf("KUBECONFIG (%s): %w", env, err)
	case none && k.Context == "":
		if cfg, inPod := rest.InClusterConfig(); inPod == nil {
			return named(cfg), nil
		}
		fallthrough
	default:
		err = fmt.Errorf("%s: %w", clientcmd.RecommendedHomeFile, err)
	}
	if none {
		err = fmt.Errorf("no cluster: %w: give --kubeconfig, or set kubernetes.kubeconfig or KUBECONFIG", err)
	}
	return nil, &exitError{exitEnvironment, err}
}

// loadKubeconfig returns how a cluster is reached by the file that a key or flag names.
func loadKubeconfig(key string, k config.Kubernetes) (*rest.Config, error) {
	cfg, err := clusterOfKubeconfig(k)
	if err != nil {
		return nil, &exitError{exitConfig, fmt.Errorf("%s %s: %w", key, k.Kubeconfig, err)}
	}
	return cfg, nil
}

// clusterOfKubeconfig reads the explicit file, or else the default ones.
func clusterOfKubeconfig(k config.Kubernetes) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.Kubeconfig
	raw, err := rules.Load()
	if err != nil {
		return nil, oneLine(err)
	}
	if clientcmdapi.IsConfigEmpty(raw) {
		if slices.ContainsFunc(rules.GetLoadingPrecedence(), func(path string) bool { _, err := os.Stat(path); return err == nil }) {
			return nil, errKubeconfigEmpty
		}
		return nil, errKubeconfigAbsent
	}
	if err := checkContext(raw, cmp.Or(k.Context, raw.CurrentContext)); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*raw, k.Context, &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if err != nil {
		return nil, oneLine(err)
	}
	return named(cfg), nil
}

// checkContext returns an error if a kubeconfig does not say which cluster a context is for.
func checkContext(raw *clientcmdapi.Config, name string) error {
	context := raw.Contexts[name]
	contexts := "it has no contexts"
	if len(raw.Contexts) > 0 {
		contexts = "contexts: " + strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", ")
	}
	switch {
	case name == "":
		return fmt.Errorf("it has no current-context (%s): choose one with --context or kubernetes.context", contexts)
	case context == nil:
		return fmt.Errorf("it has no context %q (%s): correct --context, kubernetes.context or current-context", name, contexts)
	case raw.Clusters[context.Cluster] == nil:
		return fmt.Errorf("context %q is for the cluster %q, which is not in the file: choose another context with --context or kubernetes.context", name, context.Cluster)
	case raw.Clusters[context.Cluster].Server == "":
		return fmt.Errorf("cluster %q has no server: set its address", context.Cluster)
	}
	return nil
}

// named lets the API server's audit log show which program asked.
func named(cfg *rest.Config) *rest.Config {
	cfg.UserAgent = "kubebridge/" + currentVersion().Version
	return cfg
}

func oneLine(err error) error { return errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")) }
