// Command kube is the whole of a small Kubernetes cluster in one static
// binary: the lab starts etcd, the control plane, the kubelet and kubectl from
// it. Which program runs is the first argument, or the name of the binary when
// it is called through a link.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	name := filepath.Base(os.Args[0])
	if name == "kube" && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command, ok := programs[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "kube: no program %q here; it has %s\n", name, strings.Join(names(), ", "))
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}

func names() []string {
	all := []string{"etcd"}
	for name := range programs {
		all = append(all, name)
	}
	sort.Strings(all)
	return all
}
