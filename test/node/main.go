// Program node contains the components of a cluster other than the API server: the real kubelet, kube-controller-manager,
// kube-scheduler and kubectl in one program, so that only one program is built. The name with which it is called selects the
// component.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	command, err := named(filepath.Base(os.Args[0]))
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}

// named is the command of that name.
func named(name string) (*cobra.Command, error) {
	switch name {
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background()), nil
	case "kube-controller-manager":
		return controllers.NewControllerManagerCommand(), nil
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand(), nil
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand(), nil
	default:
		return nil, fmt.Errorf("called as %q, want kubelet, kube-controller-manager, kube-scheduler or kubectl", name)
	}
}
