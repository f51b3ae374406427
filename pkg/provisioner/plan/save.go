package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Saved decides whether a PersistentVolume that exists under the name of one to
// be saved is that very one, saved by an earlier try.
func Saved(existing, volume *corev1.PersistentVolume) bool {
	if existing.Spec.ClaimRef == nil || existing.Spec.ClaimRef.UID != volume.Spec.ClaimRef.UID {
		return false
	}
	return existing.Spec.CSI == nil || SharesVolume(existing, volume)
}

// SharesVolume tells whether two PersistentVolumes are for the same volume of the
// same driver: then it must not be deleted for one of them.
func SharesVolume(a, b *corev1.PersistentVolume) bool {
	return a.Spec.CSI != nil && b.Spec.CSI != nil &&
		a.Spec.CSI.Driver == b.Spec.CSI.Driver && a.Spec.CSI.VolumeHandle == b.Spec.CSI.VolumeHandle
}

// Taken tells whether a PersistentVolume of the name of a claim's is another's.
func Taken(existing *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	owner := existing.Spec.ClaimRef
	if owner == nil || owner.Namespace != claim.Namespace || owner.Name != claim.Name {
		return true
	}
	// Without a UID it is reserved for whichever claim has the name.
	return owner.UID != "" && owner.UID != claim.UID
}

// Abandoned decides what is to become of a volume that a provisioner left in the
// making, from what there is now: its PersistentVolume and its claim, nil for
// what does not exist.
func Abandoned(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, template *corev1.PersistentVolume) Remains {
	switch {
	case volume != nil && savedAs(volume, template):
		return RemainsSaved
	case claim != nil && claim.Spec.VolumeName == "":
		return RemainsWanted
	default:
		return RemainsOrphaned
	}
}

// savedAs tells whether a PersistentVolume is the one that a template became. One
// that is being deleted may be that of an earlier try, and its volume made anew since,
// unless it says that the process that noted the template has saved it.
func savedAs(volume, template *corev1.PersistentVolume) bool {
	if volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != template.Spec.ClaimRef.UID {
		return false
	}
	saver := savedBy(volume)
	return volume.DeletionTimestamp == nil || saver != "" && saver == savedBy(template)
}

func savedBy(volume *corev1.PersistentVolume) string {
	if volume.Spec.CSI == nil {
		return ""
	}
	return volume.Spec.CSI.VolumeAttributes[identityAttribute]
}

// MayDeleteUnsaved tells whether a volume whose PersistentVolume the API server
// refuses may be deleted, as its claim is gone: only where that is what would become
// of the PersistentVolume, and where no claim of the name, such as one that was
// restored from a backup, counts on it.
func MayDeleteUnsaved(template *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return template.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete &&
		(claim == nil || claim.Spec.VolumeName != template.Name)
}

// Remains is what Abandoned decides.
type Remains int

const (
	// RemainsSaved has its PersistentVolume: nothing is left to do.
	RemainsSaved Remains = iota
	// RemainsWanted will be made again for its claim, as the same volume.
	RemainsWanted
	// RemainsOrphaned is nobody's: no claim will lead to it any longer.
	RemainsOrphaned
	// RemainsElsewhere is nobody's, as its claim gets a volume on another node.
	RemainsElsewhere
)

// NextTry is when a failed call is repeated after it had failed this many times
// before: exponential back-off, as the work queue has it.
func NextTry(shortest, longest time.Duration, failures int) time.Duration {
	delay := shortest
	for range failures {
		if delay >= longest/2 {
			return longest
		}
		delay *= 2
	}
	return min(delay, longest)
}

// Retried is an error's message with the time of the next try.
func Retried(err error, delay time.Duration) *Failure {
	note := fmt.Sprintf("; next try in %s", delay.Round(time.Millisecond))
	return &Failure{message: truncate(err.Error(), maxMessageBytes-len(note)) + note}
}
