package driver

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// parseID parses the ID of a kind of object in a request. Errors: volume.ErrForeignID for
// one that nothing of this driver can have.
func parseID[ID any](kind, text string, parse func(string) (ID, error)) (id ID, err error) {
	if text == "" {
		return id, fmt.Errorf("%w: no %s ID", volume.ErrInvalid, kind)
	}
	return parse(text)
}

func checkEntries(req interface{ GetMaxEntries() int32 }) error {
	if req.GetMaxEntries() < 0 {
		return fmt.Errorf("%w: max_entries %d is negative", volume.ErrInvalid, req.GetMaxEntries())
	}
	return nil
}

// secretOptions are mount options for calls without a capability, under the same key as
// in csi-driver-nfs, which ignores its case too.
func secretOptions(secrets map[string]string) []string {
	for _, key := range slices.Sorted(maps.Keys(secrets)) {
		if options := secrets[key]; options != "" && strings.EqualFold(key, volume.KeyMountOptions) {
			return []string{options}
		}
	}
	return nil
}
