package cluster

import (
	"context"
	"fmt"
	"os/exec"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Apply installs a kustomization, as `kubectl apply -k` does.
func (c *Cluster) Apply(ctx context.Context, dir string) error {
	kubeconfig, err := c.Kubeconfig("admin", adminToken)
	if err != nil {
		return err
	}
	kubectl := exec.CommandContext(ctx, c.Binary, "kubectl", "--kubeconfig="+kubeconfig, "apply", "-k", dir)
	if output, err := kubectl.CombinedOutput(); err != nil {
		return fmt.Errorf("apply %s: %w: %s", dir, err, output)
	}
	return nil
}

// AdminKubeconfig writes a file with the administrator's token.
func (c *Cluster) AdminKubeconfig() (string, error) { return c.Kubeconfig("admin", adminToken) }

// ServiceAccountKubeconfig writes a file with a token of the account.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	token, err := c.Admin.CoreV1().ServiceAccounts(namespace).
		CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of service account %s/%s: %w", namespace, name, err)
	}
	return c.Kubeconfig(namespace+"-"+name, token.Status.Token)
}
