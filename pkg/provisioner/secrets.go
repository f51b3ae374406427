package provisioner

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// creationSecrets are what making a volume needs.
func (p *Provisioner) creationSecrets(ctx context.Context, creation *plan.Creation) (map[string]string, error) {
	return p.readSecret(ctx, creation.Secret, creation.SecretNamedBy)
}

// readSecret gets the data of a provisioner secret, the only one that is used here;
// nil for no reference. Secrets are read when they are used and never cached.
func (p *Provisioner) readSecret(ctx context.Context, ref *plan.SecretRef, namedBy string) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	secret, err := p.client.CoreV1().Secrets(ref.Namespace).Get(klog.NewContext(ctx, klog.Logger{}), ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", plan.DescribeSecret(plan.ProvisionerSecret, *ref, namedBy), err)
	}
	data := make(map[string]string, len(secret.Data))
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data, nil
}
