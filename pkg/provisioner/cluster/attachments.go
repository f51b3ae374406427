package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/tools/cache"
)

// errAttached is wrapped when a volume to be deleted is attached to a node.
var errAttached = errors.New("volume is still attached")

func (c *Cluster) attachments() storageinformers.VolumeAttachmentInformer {
	return c.Informers.Storage().V1().VolumeAttachments()
}

// CheckDetached fails for a volume that is attached to a node, or whose attachment
// cannot be determined. A driver that attaches volumes need not know by itself that
// one is in use.
func (c *Cluster) CheckDetached(ctx context.Context, volume *corev1.PersistentVolume) error {
	if !c.Driver.Attach {
		return nil
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.attachments().Informer().HasSynced) {
		return fmt.Errorf("look up attachments of the volume: %w", context.Cause(ctx))
	}
	all, err := c.attachments().Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("look up attachments of the volume: %w", err)
	}
	for _, attachment := range all {
		source := attachment.Spec.Source.PersistentVolumeName
		if attachment.Spec.Attacher == c.Driver.DriverName && source != nil && *source == volume.Name {
			return fmt.Errorf("%w: VolumeAttachment %s to node %s", errAttached, attachment.Name, attachment.Spec.NodeName)
		}
	}
	return nil
}
