package nfsmount

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// CheckAllowed reports the first option of a list, in the form of ParseOptions, that is
// not allowed. allowed has names, which allow every value, and name=value pairs.
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

// Version4 restricts the options to version 4, for which the mount table shows the
// mounted path after symlinks. Errors: volume.ErrMountOptions for version 3.
func (o Options) Version4() (Options, error) {
	switch o.version.major {
	case 0:
		o.version = version{4, anyMinor}
	case 3:
		return Options{}, fmt.Errorf("%w: version 3 is not possible here", volume.ErrMountOptions)
	}
	return o, nil
}
