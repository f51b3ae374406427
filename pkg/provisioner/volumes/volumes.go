// Package volumes creates, saves and deletes the volumes of claims. It gathers what a
// claim refers to, lets package plan decide, calls the CSI driver and saves the
// PersistentVolume. It also finishes what dead processes and deleted claims left
// behind.
package volumes

import (
	"time"

	expiring "k8s.io/apimachinery/pkg/util/cache"
)

// Volumes are the volumes of one driver.
type Volumes struct {
	*creator
	*deleter
	*cleaner
	*tracker
}

// New returns Volumes that know nothing of earlier processes until Resume.
func New(config Config) *Volumes {
	calls := calls{config}
	tracker := &tracker{config: config, started: time.Now(), deleted: expiring.NewExpiring()}
	saver := &saver{config: config, calls: calls, tracker: tracker}
	return &Volumes{
		creator: &creator{config: config, calls: calls, saver: saver, tracker: tracker},
		deleter: &deleter{config: config, calls: calls, tracker: tracker},
		cleaner: &cleaner{config: config, calls: calls, saver: saver, tracker: tracker},
		tracker: tracker,
	}
}
