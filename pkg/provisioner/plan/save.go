package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Saved decides whether an existing PersistentVolume of the same name is the one to be
// saved, by an earlier try.
func Saved(existing, volume *corev1.PersistentVolume) bool {
	if existing.Spec.ClaimRef == nil || existing.Spec.ClaimRef.UID != volume.Spec.ClaimRef.UID {
		return false
	}
	return existing.Spec.CSI == nil || SharesVolume(existing, volume)
}

// SharesVolume reports whether two PersistentVolumes are for the same volume, which
// then must not be deleted for one of them.
func SharesVolume(a, b *corev1.PersistentVolume) bool {
	return a.Spec.CSI != nil && b.Spec.CSI != nil &&
		a.Spec.CSI.Driver == b.Spec.CSI.Driver && a.Spec.CSI.VolumeHandle == b.Spec.CSI.VolumeHandle
}

// OwnedByOther reports whether a PersistentVolume with the name of a claim's does not
// belong to that claim.
func OwnedByOther(existing *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	owner := existing.Spec.ClaimRef
	if owner == nil || owner.Namespace != claim.Namespace || owner.Name != claim.Name {
		return true
	}
	// Without a UID it is reserved for whichever claim has the name.
	return owner.UID != "" && owner.UID != claim.UID
}

// Abandoned decides what becomes of an unfinished volume, by its PersistentVolume and
// the claim of its name; nil is one that does not exist.
func Abandoned(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, template *corev1.PersistentVolume) Remains {
	switch {
	case volume != nil && savedAs(volume, template):
		return RemainsSaved
	case claim != nil && claim.UID == template.Spec.ClaimRef.UID && claim.Spec.VolumeName == "":
		return RemainsWanted
	default:
		return RemainsOrphaned
	}
}

// savedAs reports whether a PersistentVolume was saved from a template. One that is
// being deleted may be of an earlier try, with its volume created anew since, unless
// the process that recorded the template has saved it.
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
	return volume.Spec.CSI.VolumeAttributes[IdentityAttribute]
}

// MayDeleteUnsaved reports whether a volume whose claim is gone and whose
// PersistentVolume the API server refuses may be deleted: if that is the reclaim policy,
// and no claim of that name needs the volume, such as one restored from a backup.
func MayDeleteUnsaved(template *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return template.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete &&
		(claim == nil || claim.Spec.VolumeName != template.Name)
}

// Remains is the result of Abandoned.
type Remains int

const (
	// RemainsSaved has its PersistentVolume.
	RemainsSaved Remains = iota
	// RemainsWanted will be requested again for its claim, as the same volume.
	RemainsWanted
	// RemainsOrphaned has no claim that leads to it.
	RemainsOrphaned
	// RemainsElsewhere has a claim that gets its volume on another node.
	RemainsElsewhere
)

// NextTry is the delay after so many failures, by the exponential backoff of the work
// queue.
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

// Retried adds the delay until the next try to the message of an error.
func Retried(err error, delay time.Duration) *Failure {
	note := fmt.Sprintf("; next try in %s", delay.Round(time.Millisecond))
	return &Failure{message: truncate(err.Error(), maxMessageBytes-len(note)) + note}
}
