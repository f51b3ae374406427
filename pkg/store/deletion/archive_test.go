package deletion

import (
	"strings"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestArchiveNames(t *testing.T) {
	long := strings.Repeat("é", 127)
	n := 0
	for subDir := range archiveNames(volume.ID{SubDir: "a/" + long, Name: long}) {
		if err := volume.CheckSubDir(subDir); err != nil {
			t.Errorf("%s: %v", subDir, err)
		}
		if n++; n == 5 {
			break
		}
	}
}
