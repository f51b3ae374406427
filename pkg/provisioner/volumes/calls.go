package volumes

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// calls are the driver's, with their secrets.
type calls struct{ config Config }

// errNoVolumes is wrapped when the driver does not declare CREATE_DELETE_VOLUME. It is
// never called then.
var errNoVolumes = errors.New("volumes cannot be created or deleted")

// able checks what the driver declares. It is asked before a call and what the call needs.
func (c calls) able() error {
	if capabilities := c.config.Driver.Capabilities(); !capabilities.Volumes {
		return fmt.Errorf("%w: CSI driver %s does not declare CREATE_DELETE_VOLUME", errNoVolumes, capabilities.DriverName)
	}
	return nil
}

// create calls CreateVolume. Nothing keeps the secrets.
func (c calls) create(ctx context.Context, creation *plan.Creation, secrets map[string]string) (*csi.CreateVolumeResponse, controller.ProvisioningState, error) {
	request := proto.CloneOf(creation.Request)
	request.Secrets = secrets
	response, err := c.config.Driver.CreateVolume(withMigrated(ctx, creation.Migrated), request)
	if err != nil {
		return nil, creation.FailedState(err), plan.NewFailure("CreateVolume", c.config.Cluster.Driver.DriverName, err, plan.Redactor(secrets))
	}
	return response, controller.ProvisioningInBackground, nil
}

// delete calls DeleteVolume.
func (c calls) delete(ctx context.Context, request *csi.DeleteVolumeRequest, migrated bool) error {
	if _, err := c.config.Driver.DeleteVolume(withMigrated(ctx, migrated), request); err != nil {
		return plan.NewFailure("DeleteVolume", c.config.Cluster.Driver.DriverName, err, plan.Redactor(request.GetSecrets()))
	}
	return nil
}

// creationSecrets are those of CreateVolume.
func (c calls) creationSecrets(ctx context.Context, creation *plan.Creation) (map[string]string, error) {
	return c.readSecret(ctx, creation.Secret, creation.SecretNamedBy)
}

// readSecret returns the data of a provisioner secret, none for zero.
// Secrets are read when they are used and never cached.
func (c calls) readSecret(ctx context.Context, ref plan.SecretRef, namedBy string) (map[string]string, error) {
	if ref.IsZero() {
		return nil, nil
	}
	// client-go would log the whole object.
	secret, err := c.config.Cluster.Client.CoreV1().Secrets(ref.Namespace).Get(klog.NewContext(ctx, klog.Logger{}), ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read provisioner secret %s, named by %s: %w", ref, namedBy, err)
	}
	data := make(map[string]string, len(secret.Data))
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data, nil
}

// withMigrated labels the metrics of a call that is about a volume of an in-tree
// plugin.
func withMigrated(ctx context.Context, migrated bool) context.Context {
	return context.WithValue(ctx, connection.AdditionalInfoKey, connection.AdditionalInfo{Migrated: strconv.FormatBool(migrated)})
}
