package tree

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// isAny reports whether the error is one of these.
func isAny(err error, errnos ...unix.Errno) bool {
	return slices.ContainsFunc(errnos, func(errno unix.Errno) bool { return errors.Is(err, errno) })
}

// restart calls f again while a signal interrupts it.
func restart[T any](f func() (T, error)) (result T, err error) {
	err = fsat.Restart(func() error {
		result, err = f()
		return err
	})
	return result, err
}
