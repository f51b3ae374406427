package volume

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxClusterID is in bytes.
const maxClusterID = 128

// CheckClusterID reports why s cannot identify a cluster in the records on an export.
// Empty is allowed: the cluster is unknown.
func CheckClusterID(s string) error {
	switch {
	case len(s) > maxClusterID:
		return fmt.Errorf("%w: cluster ID of %d bytes, at most %d are possible", ErrInvalid, len(s), maxClusterID)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%w: cluster ID %q contains characters that are not printable", ErrInvalid, s)
	case strings.TrimSpace(s) != s:
		return fmt.Errorf("%w: cluster ID %q begins or ends with a space", ErrInvalid, s)
	case strings.Contains(s, "$("):
		// Kubernetes does not expand an unknown variable: every cluster would have this ID.
		return fmt.Errorf("%w: cluster ID %q contains a variable that has no value", ErrInvalid, s)
	}
	return nil
}
