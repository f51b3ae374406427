package inventory

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// position in a list: after this path on this export. It consists of names rather than
// numbers, so it stays valid when volumes come and go, and in another process.
type position struct {
	export string
	after  string
}

const tokenForm = "1\x00"

func (p position) token() string {
	return base64.RawURLEncoding.EncodeToString([]byte(tokenForm + p.export + "\x00" + p.after))
}

// in is the path to continue after on this export; empty for its beginning.
func (p position) in(export volume.Export) string {
	if export.String() == p.export {
		return p.after
	}
	return ""
}

// parseToken reads a token; an empty one is the beginning.
func parseToken(s string) (position, error) {
	if s == "" {
		return position{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	rest, ours := strings.CutPrefix(string(b), tokenForm)
	export, after, whole := strings.Cut(rest, "\x00")
	if err != nil || !ours || !whole || export == "" || volume.CheckBelow(after) != nil {
		return position{}, fmt.Errorf("%w: %q", volume.ErrToken, s)
	}
	return position{export, after}, nil
}

// comparePaths orders paths as a walk visits them: what is below one before its next
// sibling.
func comparePaths(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}
