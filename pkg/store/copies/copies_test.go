package copies

import (
	"errors"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestSnapshotIdentity(t *testing.T) {
	have := snapshotIdentity{"s", "volume a"}
	for other, want := range map[snapshotIdentity]error{
		have:              nil,
		{"t", "volume a"}: volume.ErrOwned,
		{"s", "volume b"}: volume.ErrIncompatible,
	} {
		if err := have.Differs(other); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", other, err, want)
		}
	}
}
