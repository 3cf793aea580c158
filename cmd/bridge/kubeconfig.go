package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
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
		return loadKubeconfig("kubeconfig", k) // the key, or the flag
	}
	cfg, err := clusterOfKubeconfig(k)
	env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	code := exitEnvironment
	none := errors.Is(err, errKubeconfigAbsent) || errors.Is(err, errKubeconfigEmpty)
	switch {
	case err == nil:
		return cfg, nil
	case env != "":
		code, err = exitConfig, fmt.Errorf("KUBECONFIG (%s): %w", env, err)
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
	return nil, &exitError{code, err}
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
		for _, path := range rules.GetLoadingPrecedence() {
			if _, err := os.Stat(path); err == nil {
				return nil, errKubeconfigEmpty
			}
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
	withoutPassword(cfg)
	return named(cfg), nil
}

// checkContext returns an error if a kubeconfig does not say which cluster a context is for, or not how to reach it.
// An address that cannot be parsed may have a password, and client-go would print it.
func checkContext(raw *clientcmdapi.Config, name string) error {
	context := raw.Contexts[name]
	var cluster *clientcmdapi.Cluster
	if context != nil {
		cluster = raw.Clusters[context.Cluster]
	}
	contexts := "it has no contexts"
	if len(raw.Contexts) > 0 {
		contexts = "contexts: " + strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", ")
	}
	switch {
	case name == "":
		return fmt.Errorf("it has no current-context (%s): choose one with --context or kubernetes.context", contexts)
	case context == nil:
		return fmt.Errorf("it has no context %q (%s): correct --context, kubernetes.context or current-context", name, contexts)
	case cluster == nil:
		return fmt.Errorf("context %q is for the cluster %q, which is not in the file: "+
			"choose another context with --context or kubernetes.context", name, context.Cluster)
	case cluster.Server == "":
		return fmt.Errorf("cluster %q has no server: set its address", context.Cluster)
	}
	if _, _, err := rest.DefaultServerUrlFor(&rest.Config{Host: cluster.Server}); err != nil {
		return fmt.Errorf("cluster %q: its server is no URL like https://HOST:PORT", context.Cluster)
	}
	proxy, err := url.Parse(cluster.ProxyURL)
	if err != nil || cluster.ProxyURL != "" && !slices.Contains([]string{"http", "https", "socks5"}, proxy.Scheme) {
		return fmt.Errorf("cluster %q: its proxy-url is no URL like http://HOST:PORT, with http, https or socks5", context.Cluster)
	}
	return nil
}

// withoutPassword takes user and password out of the server's address, which errors name. They stay the credentials
// if there are no others.
func withoutPassword(cfg *rest.Config) {
	server, err := url.Parse(cfg.Host)
	if err != nil || server.User == nil {
		return
	}
	plugin := cfg.AuthProvider != nil || cfg.ExecProvider != nil
	if cfg.Username == "" && cfg.BearerToken == "" && cfg.BearerTokenFile == "" && !plugin {
		cfg.Username = server.User.Username()
		cfg.Password, _ = server.User.Password()
	}
	server.User = nil
	cfg.Host = server.String()
}

// named sets what does not come from a kubeconfig. The API server's audit log shows which program asked.
func named(cfg *rest.Config) *rest.Config {
	cfg.UserAgent = "kubebridge/" + currentVersion().Version
	if cfg.Proxy == nil {
		cfg.Proxy = proxyFromEnvironment
	}
	return cfg
}

// proxyFromEnvironment is that of net/http, whose error has the password of a proxy's address.
func proxyFromEnvironment(r *http.Request) (*url.URL, error) {
	proxy, err := http.ProxyFromEnvironment(r)
	if err != nil {
		return nil, errors.New("HTTPS_PROXY or HTTP_PROXY is no URL like http://HOST:PORT")
	}
	return proxy, nil
}

func oneLine(err error) error { return errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")) }
