package provisioner

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
)

// errAttached is wrapped when a volume is to be deleted that a node has attached.
var errAttached = errors.New("the volume is still attached")

// attachments are those of a driver that attaches volumes to nodes: it need not
// be able to tell by itself that a volume is in use.
type attachments struct {
	lister storagelisters.VolumeAttachmentLister
	synced cache.InformerSynced
}

func newAttachments(factory informers.SharedInformerFactory) *attachments {
	informer := factory.Storage().V1().VolumeAttachments()
	return &attachments{lister: informer.Lister(), synced: informer.Informer().HasSynced}
}

// refuseAttached is an error for a volume that is attached, or of which that
// cannot be told.
func (a *attachments) refuseAttached(ctx context.Context, driver string, volume *corev1.PersistentVolume) error {
	if a == nil {
		return nil
	}
	if !cache.WaitForCacheSync(ctx.Done(), a.synced) {
		return fmt.Errorf("find out whether the volume is attached: %w", context.Cause(ctx))
	}
	all, err := a.lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("find out whether the volume is attached: %w", err)
	}
	for _, attachment := range all {
		source := attachment.Spec.Source.PersistentVolumeName
		if attachment.Spec.Attacher == driver && source != nil && *source == volume.Name {
			return fmt.Errorf("%w: VolumeAttachment %s to node %s", errAttached, attachment.Name, attachment.Spec.NodeName)
		}
	}
	return nil
}
