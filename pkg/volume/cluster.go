package volume

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxClusterID is in bytes.
const maxClusterID = 128

// CheckClusterID reports why s cannot tell one cluster apart from others in the
// records on an export. An empty one is allowed: the cluster is not known.
func CheckClusterID(s string) error {
	switch {
	case len(s) > maxClusterID:
		return fmt.Errorf("%w: cluster ID of %d bytes, at most %d are possible", ErrInvalid, len(s), maxClusterID)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%w: cluster ID %q contains characters that are not printable", ErrInvalid, s)
	case strings.TrimSpace(s) != s:
		return fmt.Errorf("%w: cluster ID %q begins or ends with a space", ErrInvalid, s)
	case strings.Contains(s, "$("):
		// Kubernetes leaves a variable that it does not know as it is, in every cluster.
		return fmt.Errorf("%w: cluster ID %q contains a variable that has no value", ErrInvalid, s)
	}
	return nil
}
