package integration

import (
	"fmt"
	"testing"
)

// What deletes a volume comes back as changes of it, which must not delete it
// again.
func TestVolumesAreDeletedOnce(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	const claims = 20
	var volumes []string
	for i := range claims {
		w.createClaim(fmt.Sprintf("data-%d", i))
	}
	for i := range claims {
		volumes = append(volumes, w.awaitBound(fmt.Sprintf("data-%d", i)).Name)
	}
	for i := range claims {
		w.deleteClaim(fmt.Sprintf("data-%d", i))
	}
	for _, volume := range volumes {
		w.awaitVolumeGone(volume)
	}
	w.awaitMetrics(r, fmt.Sprintf(`controller_persistentvolume_delete_total{class="%s"} %d`, w.name, claims))
	if calls := len(w.driver.Deletes()); calls != claims {
		t.Errorf("DeleteVolume was called %d times for %d volumes", calls, claims)
	}
}
