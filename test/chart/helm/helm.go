// Package helm installs a chart through helm's library, as the command helm does, and lists
// what a release has in the cluster.
package helm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

const timeout = 5 * time.Minute

// A Client is helm with --kubeconfig and --namespace.
type Client struct {
	config    *action.Configuration
	namespace string
	wait      kube.WaitStrategy
}

// New connects to a cluster. With wait, installations and upgrades end when the workloads
// are ready, which needs a kubelet.
func New(kubeconfig, namespace string, wait bool) (*Client, error) {
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.Namespace = &kubeconfig, &namespace
	c := &Client{config: action.NewConfiguration(), namespace: namespace, wait: kube.HookOnlyStrategy}
	if wait {
		c.wait = kube.StatusWatcherStrategy
	}
	if err := c.config.Init(flags, namespace, "secret"); err != nil {
		return nil, fmt.Errorf("helm: %w", err)
	}
	return c, nil
}

// Install creates the release and its namespace.
func (c *Client) Install(ctx context.Context, release, dir, values string) error {
	return c.install(ctx, dir, values, func(i *action.Install) { i.ReleaseName, i.CreateNamespace = release, true })
}

// Adopt is `helm upgrade --install --take-ownership --force-conflicts`, for a release that
// does not exist.
func (c *Client) Adopt(ctx context.Context, release, dir, values string) error {
	return c.install(ctx, dir, values, func(i *action.Install) { i.ReleaseName, i.TakeOwnership, i.ForceConflicts = release, true, true })
}

func (c *Client) install(ctx context.Context, dir, values string, configure func(*action.Install)) error {
	install := action.NewInstall(c.config)
	install.Namespace, install.WaitStrategy, install.Timeout = c.namespace, c.wait, timeout
	configure(install)
	loaded, parsed, err := load(dir, values)
	if err != nil {
		return err
	}
	_, err = install.RunWithContext(ctx, loaded, parsed)
	return err
}

// Upgrade is `helm upgrade --reset-then-reuse-values`.
func (c *Client) Upgrade(ctx context.Context, release, dir, values string) error {
	upgrade := action.NewUpgrade(c.config)
	upgrade.Namespace, upgrade.ResetThenReuseValues = c.namespace, true
	upgrade.WaitStrategy, upgrade.Timeout = c.wait, timeout
	loaded, parsed, err := load(dir, values)
	if err != nil {
		return err
	}
	_, err = upgrade.RunWithContext(ctx, release, loaded, parsed)
	return err
}

// Rollback returns to the revision before.
func (c *Client) Rollback(release string) error {
	rollback := action.NewRollback(c.config)
	rollback.WaitStrategy, rollback.Timeout = c.wait, timeout
	return rollback.Run(release)
}

// Test runs the release's tests.
func (c *Client) Test(release string) error {
	test := action.NewReleaseTesting(c.config)
	test.Namespace, test.Timeout = c.namespace, timeout
	_, shutdown, err := test.Run(release)
	return errors.Join(err, shutdown())
}

// Uninstall deletes the release.
func (c *Client) Uninstall(release string) error {
	uninstall := action.NewUninstall(c.config)
	uninstall.WaitStrategy, uninstall.Timeout = c.wait, timeout
	_, err := uninstall.Run(release)
	return err
}

func load(dir, values string) (*chart.Chart, map[string]any, error) {
	parsed := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(values), &parsed); err != nil {
		return nil, nil, err
	}
	loaded, err := loader.LoadDir(dir)
	return loaded, parsed, err
}

// Labelled lists all objects in the cluster with a label, as KIND NAME, without what
// Kubernetes derives from others.
func Labelled(ctx context.Context, config *rest.Config, selector string) ([]string, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	derived := []string{"Endpoints", "EndpointSlice", "ControllerRevision", "ReplicaSet", "Pod", "Event", "ComponentStatus"}
	var found []string
	for _, list := range resources {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains(derived, r.Kind) {
				continue
			}
			objects, err := client.Resource(version.WithResource(r.Name)).List(ctx, metav1.ListOptions{LabelSelector: selector})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for _, o := range objects.Items {
				found = append(found, o.GetKind()+" "+o.GetName())
			}
		}
	}
	slices.SortFunc(found, strings.Compare)
	return found, nil
}
