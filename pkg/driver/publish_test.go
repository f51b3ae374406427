package driver

import (
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestShownAs(t *testing.T) {
	for _, tt := range []struct {
		export volume.Export
		subDir string
		inline bool
		source string
		want   bool
	}{
		{volume.Export{Server: "s", Share: "/e"}, "v", false, "s:/e/v", true},
		{volume.Export{Server: "s", Share: "/e"}, "v", false, "s:/srv/nfs/v", true}, // the share is a symlink
		{volume.Export{Server: "s", Share: "/"}, "v", false, "s:/srv/v", true},
		{volume.Export{Server: "fd00::1", Share: "/e"}, "a/v", false, "[fd00::1]:/x/a/v", true},
		{volume.Export{Server: "s", Share: "/e"}, "v", false, "s:/e/w", false},
		{volume.Export{Server: "s", Share: "/e"}, "v", false, "s:/e", false},
		{volume.Export{Server: "s", Share: "/e"}, "v", false, "s:/e/wv", false},
		{volume.Export{Server: "s", Share: "/e"}, "a/v", false, "s:/e/b/v", false},
		{volume.Export{Server: "s", Share: "/e"}, "v", false, "t:/e/v", false},
		{volume.Export{Server: "s", Share: "/e"}, "v", true, "s:/srv/v", false},
		{volume.Export{Server: "s", Share: "/e"}, "", false, "s:/e", true},
		{volume.Export{Server: "s", Share: "/e"}, "", false, "s:/f", false},
	} {
		pub := publication{mount: nfsmount.Mount{Export: tt.export, SubDir: tt.subDir}, inline: tt.inline}
		if got := pub.shownAs(tt.source); got != tt.want {
			t.Errorf("%s, inline %v: shown as %s: %v, want %v", pub.mount.Source(), tt.inline, tt.source, got, tt.want)
		}
	}
}
