package inventory

import (
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func FuzzParseToken(f *testing.F) {
	f.Add(position{"nfs.test:/export", "a/b"}.token())
	f.Add("")
	f.Add("MQBhAC4u")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseToken(s)
		if err == nil && s != "" && volume.CheckSubDir(p.after) != nil {
			t.Fatalf("%q read as %+v", s, p)
		}
	})
}
