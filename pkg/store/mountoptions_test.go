package store

import (
	"slices"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
)

// A call without mount options uses those of the class that the export was mounted
// for last, or else the configured ones.
func TestMountOptionsOfTheClassAreRemembered(t *testing.T) {
	l := newLab(t)
	l.inventory = inventory.New(inventory.Config{Exports: l.exports, MountOptions: []string{"timeo=10"}})
	for _, tt := range []struct{ class, said, want []string }{
		{nil, nil, []string{"timeo=10"}},
		{[]string{"timeo=20"}, nil, []string{"timeo=20"}},
		{[]string{"timeo=20"}, []string{"timeo=30"}, []string{"timeo=30"}},
		{nil, nil, []string{"timeo=10"}},
	} {
		req := l.request("pvc-1")
		req.MountOptions = tt.class
		v, err := l.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Delete(t.Context(), v.ID, tt.said); err != nil {
			t.Fatal(err)
		}
		if got := l.target(l.export, "", tt.said).MountOptions; !slices.Equal(got, tt.want) {
			t.Errorf("class with %v, call with %v: mounted with %v, want %v", tt.class, tt.said, got, tt.want)
		}
	}
}
