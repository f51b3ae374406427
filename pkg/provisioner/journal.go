package provisioner

import (
	"context"
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/journal"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// Numbers of ConfigMaps of a journal. The permissions of deploy/kubernetes name each of
// them; on one node, fewer volumes are created at a time.
const (
	journalShards     = 4
	nodeJournalShards = 1
)

// openJournal retries until the API server answers. It returns neither a journal nor
// an error when asked to stop before that.
func (p *Provisioner) openJournal(ctx context.Context, drain <-chan struct{}, events record.EventRecorder) (*journal.Journal, error) {
	config := p.journalConfig(events)
	for {
		entries, err := journal.Open(ctx, config)
		if err == nil {
			return entries, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		delay := p.retries.When(config.Name)
		klog.FromContext(ctx).Error(err, "Failed to open the journal", logkeys.RetryIn, delay)
		select {
		case <-drain:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(delay):
		}
	}
}

func (p *Provisioner) journalConfig(events record.EventRecorder) journal.Config {
	from := p.config.Journal
	config := journal.Config{
		Client: p.config.Client.CoreV1().ConfigMaps(from.Namespace), Namespace: from.Namespace, Name: from.Name, Shards: journalShards,
		Former: from.Former, Convert: convertEntry, Leading: from.Leading, Events: events, EndDelay: from.EndDelay,
	}
	if !p.config.Node.IsZero() {
		config.Shards, config.Owner = nodeJournalShards, p.nodeOwner
	}
	return config
}

// convertEntry reads an entry that has the topologies in the request.
func convertEntry(data []byte) (journal.Entry, error) {
	creation, err := plan.RestoreCreation(data, nil)
	if err != nil {
		return journal.Entry{}, err
	}
	stored, topologies, err := creation.Store()
	return journal.Entry{Data: stored, Lists: topologies}, err
}

// nodeOwner is the CSINode of the node, so that the journal goes with it. The pod would be
// gone just when the journal is needed. It needs no other permission than topology does;
// without it, there is no owner.
func (p *Provisioner) nodeOwner(ctx context.Context) ([]metav1.OwnerReference, error) {
	name := p.config.Node.Name
	list, err := p.config.Client.StorageV1().CSINodes().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("look up the owner of the journal: %w", err)
	}
	var nodes []storagev1.CSINode
	if err == nil {
		nodes = list.Items
	}
	i := slices.IndexFunc(nodes, func(n storagev1.CSINode) bool { return n.Name == name })
	if i < 0 {
		klog.FromContext(ctx).Info("The journal will not be deleted with its node: its CSINode is not there or must not be listed", logkeys.Node, name)
		return nil, nil
	}
	return []metav1.OwnerReference{{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "CSINode", Name: name, UID: nodes[i].UID}}, nil
}
