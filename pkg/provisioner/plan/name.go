package plan

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// WholeUID as a UUID length keeps a claim's UID as it is.
	WholeUID = -1

	uidHexDigits = 32
	uidLength    = 36
)

// Naming derives the name of a claim's volume, which is also the name of its
// PersistentVolume. It is the same for every try, so that a retry finds the volume of
// an earlier one.
type Naming struct {
	prefix     string
	uuidLength int
}

// NewNaming validates --volume-name-prefix and --volume-name-uuid-length: WholeUID,
// or the number of hexadecimal digits of the UID to keep, without dashes.
func NewNaming(prefix string, uuidLength int) (Naming, error) {
	if uuidLength != WholeUID && (uuidLength < 1 || uuidLength > uidHexDigits) {
		return Naming{}, fmt.Errorf("volume name UUID length is %d, must be %d (whole UID) or 1 to %d",
			uuidLength, WholeUID, uidHexDigits)
	}
	longest := prefix + "-" + strings.Repeat("0", uidLength)
	if problems := validation.IsDNS1123Subdomain(longest); len(problems) > 0 {
		return Naming{}, fmt.Errorf("volume name prefix %q does not form a valid PersistentVolume name: %s",
			prefix, strings.Join(problems, "; "))
	}
	return Naming{prefix: prefix, uuidLength: uuidLength}, nil
}

// Name is the name of the volume for the claim with this UID.
func (n Naming) Name(uid types.UID) string {
	id := string(uid)
	if n.uuidLength != WholeUID {
		id = strings.ReplaceAll(id, "-", "")
		id = id[:min(n.uuidLength, len(id))]
	}
	return n.prefix + "-" + id
}
