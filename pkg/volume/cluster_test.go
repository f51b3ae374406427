package volume

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckClusterID(t *testing.T) {
	for _, good := range []string{"", "prod-eu", "0b5e7c1a-6a3c-4f6e-9a43-b1b2f0d1c9aa", "Zürich 2", strings.Repeat("x", 128)} {
		if err := CheckClusterID(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{strings.Repeat("x", 129), "a\nb", "a\x00", "\xff", " a", "a ", "$(CLUSTER_ID)"} {
		if err := CheckClusterID(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", bad, err)
		}
	}
}
