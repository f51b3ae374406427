package nfsmount

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Whatever mountOptions contain, the kernel gets the address and the version that the
// driver chose, in a single line.
func FuzzParseOptions(f *testing.F) {
	for _, seed := range []string{
		"", "hard,nconnect=4", "ro,rw,noatime,relatime", "vers=4,minorversion=1", "v4.2", "nfsvers=3,nolock", "bg,retry=2,x-systemd.automount",
		`context="system_u:object_r:t:s0:c1,c2",soft`, `hard="a,addr=10.0.0.1"`, "addr=10.0.0.1", "port=70000", "clientaddr=::1", ",,=,", " addr =1", "a\x00b",
	} {
		f.Add(seed)
	}
	addr := netip.MustParseAddr("192.0.2.1")
	f.Fuzz(func(t *testing.T, in string) {
		o, err := ParseOptions([]string{in})
		if err != nil {
			if !errors.Is(err, volume.ErrMountOptions) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		for _, v := range o.version.candidates() {
			data := Mount{Options: o, LocalLocks: true}.dataFor(v, addr)
			if strings.ContainsAny(data, "\x00\n") {
				t.Fatalf("%q gives %q", in, data)
			}
			// The kernel splits like this where it does not parse quotes.
			opts := strings.Split(data, ",")
			for i, opt := range opts {
				name, _, _ := strings.Cut(opt, "=")
				if i < len(opts)-1 && refused(name) != "" || i > 0 && (name == "vers" || name == "nfsvers" || name == "minorversion") {
					t.Fatalf("%q gives %q, with an option that is the driver's", in, data)
				}
			}
			if opts[0] != v.String() || opts[len(opts)-1] != "addr=192.0.2.1" {
				t.Fatalf("%q gives %q", in, data)
			}
		}
		again, err := ParseOptions([]string{strings.Join(o.data, ",")})
		if err != nil || strings.Join(again.data, ",") != strings.Join(o.data, ",") {
			t.Fatalf("%q is kept as %q, which reads as %q, %v", in, o.data, again.data, err)
		}
	})
}

// The kernel writes the mount table, but its sources and options may come from anyone who
// can mount.
func FuzzMountTable(f *testing.F) {
	for _, seed := range []string{
		"36 35 0:40 / /var/lib/kubelet/pods/x/mount rw,relatime shared:1 - nfs4 nas:/export/v rw,vers=4.2,port=0,addr=10.0.0.1\n",
		"37 35 0:41 /sub /mnt ro - nfs [fe80::1]:/e rw,vers=3,port=20490,addr=fe80::1\n",
		`38 35 0:42 / /with\040space rw - nfs nas:/a\040b rw` + "\n",
		"39 35 0:43 / /x rw - nfs4 : rw,addr=,port=\n", "40 35 0:43 / /x rw - nfs4 [ \"\n", "garbage\n", "",
		"41 35 0:44 / /twice rw - nfs nas:/a rw\n42 41 0:45 / /twice rw - nfs nas:/b rw\n", "43 35 0:46 / /at / rw - nfs nas:/a rw",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, table string) {
		infos, err := mountinfo.GetMountsFromReader(strings.NewReader(table), nil)
		if err != nil {
			return
		}
		last := map[string]*mountinfo.Info{}
		for _, i := range infos {
			last[i.Mountpoint] = i
		}
		for target, want := range last {
			if got, err := lastAt([]byte(table), target); err != nil || *got != *want {
				t.Fatalf("%q has %+v, %v at %q, want %+v", table, got, err, target, want)
			}
		}
		for _, i := range infos {
			e := entryOf(i)
			if e.Target != i.Mountpoint || e.Source != i.Source || !e.IsNFS() && e.Server != "" {
				t.Fatalf("%q gives %+v", table, e)
			}
		}
	})
}
