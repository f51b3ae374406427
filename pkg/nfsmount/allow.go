package nfsmount

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// CheckAllowed reports the first option of a list, as ParseOptions reads it, that
// is not allowed: by its name, which allows every value, or as name=value.
func CheckAllowed(list, allowed []string) error {
	for _, element := range list {
		for _, opt := range splitOptions(element) {
			opt = strings.TrimSpace(opt)
			name, _, _ := strings.Cut(opt, "=")
			if opt != "" && !slices.Contains(allowed, name) && !slices.Contains(allowed, opt) {
				return fmt.Errorf("%w: mount option %q, allowed are %s", volume.ErrInvalid, opt, strings.Join(allowed, ", "))
			}
		}
	}
	return nil
}

// Version4 narrows the options to version 4, where the mount table shows what
// the server has really mounted, after symlinks. Errors: volume.ErrMountOptions
// when they ask for version 3.
func (o Options) Version4() (Options, error) {
	switch o.version.major {
	case 0:
		o.version = version{4, anyMinor}
	case 3:
		return Options{}, fmt.Errorf("%w: version 3 is not possible here", volume.ErrMountOptions)
	}
	return o, nil
}
