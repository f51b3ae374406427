package nfsmount

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// saysSec is the value of sec= in the data of a mount, empty if there is none.
func saysSec(data string) string {
	for opt := range strings.SplitSeq(data, ",") {
		if value, ok := strings.CutPrefix(opt, "sec="); ok {
			return value
		}
	}
	return ""
}

func TestFlavorIsLookedForOnce(t *testing.T) {
	tests := map[string]struct {
		options  string
		kernel   string // what it negotiates
		refusal  error  // of the second mount with sec=sys
		other    bool   // the second mount is of another share
		want     []string
		wantFail error
	}{
		"AUTH_SYS":            {kernel: "sys", want: []string{"", "sys"}},
		"Kerberos":            {kernel: "krb5p", want: []string{"", ""}},
		"not known":           {kernel: "", want: []string{"", ""}},
		"the class says it":   {options: "sec=krb5", kernel: "sys", want: []string{"krb5", "krb5"}},
		"version 3":           {options: "vers=3,nolock", kernel: "sys", want: []string{"", ""}},
		"another share":       {kernel: "sys", other: true, want: []string{"", ""}},
		"wanted no more":      {kernel: "sys", refusal: unix.EPERM, want: []string{"", "sys", ""}},
		"allowed no more":     {kernel: "sys", refusal: unix.EACCES, want: []string{"", "sys", ""}},
		"another kind of end": {kernel: "sys", refusal: unix.ENOENT, want: []string{"", "sys"}, wantFail: volume.ErrShareNotFound},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var said []string
			k, m := kernelWith(t, syscalls{
				mount: func(_, _, _ string, _ uintptr, data string) error {
					said = append(said, saysSec(data))
					if len(said) == 2 {
						return test.refusal
					}
					return nil
				},
				flavor: func(string) string { return test.kernel },
			})
			var err error
			if m.Options, err = ParseOptions([]string{test.options}); err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				if test.other && i == 1 {
					m.Export.Share = "/other"
				}
				err := k.attempt(t.Context(), m, netip.MustParseAddr("127.0.0.1"))
				if want := test.wantFail; (i == 0 || want == nil) && err != nil || i == 1 && want != nil && !errors.Is(err, want) {
					t.Errorf("mount %d: %v", i+1, err)
				}
			}
			if !slices.Equal(said, test.want) {
				t.Errorf("the mounts said sec= %q, want %q", said, test.want)
			}
		})
	}
}

func TestFlavorIsForgotten(t *testing.T) {
	var f flavors
	share, other := volume.Export{Server: "a", Share: "/e"}, volume.Export{Server: "b", Share: "/e"}
	now := time.Now()
	f.learn(share, flavorSys, now)
	if late := now.Add(flavorTime - time.Second); !f.isSys(share, late) || f.isSys(other, late) {
		t.Error("not known for its time, or of another share")
	}
	late := now.Add(flavorTime)
	if f.isSys(share, late) {
		t.Error("known for longer than its time")
	}
	if f.learn(other, flavorSys, late); len(f.until) != 1 {
		t.Errorf("%d shares are kept, want the one whose time is not over", len(f.until))
	}
}
