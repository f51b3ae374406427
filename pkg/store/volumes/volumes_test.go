package volumes

import (
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestPolicy(t *testing.T) {
	tests := []struct{ record, id, flag, want volume.OnDelete }{
		{"", "", "", volume.OnDeleteDelete},
		{"", "", volume.OnDeleteArchive, volume.OnDeleteArchive},
		{"", volume.OnDeleteRetain, volume.OnDeleteArchive, volume.OnDeleteRetain},
		{volume.OnDeleteRetain, volume.OnDeleteDelete, "", volume.OnDeleteRetain},
		{volume.OnDeleteDelete, "", volume.OnDeleteRetain, volume.OnDeleteDelete},
	}
	for _, tt := range tests {
		config := Config{OnDelete: tt.flag}
		if got := config.Policy(catalog.Record{OnDelete: tt.record}, volume.ID{OnDelete: tt.id}); got != tt.want {
			t.Errorf("record %q, ID %q, flag %q: %q, want %q", tt.record, tt.id, tt.flag, got, tt.want)
		}
	}
}
