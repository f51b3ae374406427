package volumes

import (
	"errors"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestSameRequest(t *testing.T) {
	have := catalog.Record{Name: "n", SubDir: "d", Parameters: map[string]string{"share": "/a"}, Capacity: 5}
	tests := map[string]struct {
		change func(*catalog.Record)
		want   error
	}{
		"same":             {func(*catalog.Record) {}, nil},
		"other metadata":   {func(r *catalog.Record) { r.Metadata = map[string]string{"x": "y"} }, nil},
		"other options":    {func(r *catalog.Record) { r.MountOptions = []string{"soft"} }, nil},
		"other parameters": {func(r *catalog.Record) { r.Parameters = map[string]string{"share": "/b"} }, volume.ErrIncompatible},
		"other name":       {func(r *catalog.Record) { r.Name = "m" }, volume.ErrOwned},
	}
	for name, tt := range tests {
		want := have
		tt.change(&want)
		if err := SameRequest(have, want, SizeRange{Required: 5}); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}
