package nfsmount

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestParseOptions(t *testing.T) {
	tests := []struct {
		in    []string
		flags uintptr
		vers  version
		data  string
	}{
		{in: nil},
		{in: []string{"", "defaults", " hard "}, data: "hard"},
		{in: []string{"ro,nosuid,nodev,noexec"}, flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{in: []string{"ro", "rw"}},
		{in: []string{"noatime", "relatime"}, flags: unix.MS_RELATIME},
		{in: []string{"nconnect=4", "sec=krb5p,xprtsec=mtls"}, data: "nconnect=4,sec=krb5p,xprtsec=mtls"},
		{in: []string{"sec=krb5p,hard", "soft", "sec=sys:krb5i"}, data: "hard,soft,sec=sys:krb5i"},
		{in: []string{"bg,retry=2,_netdev,nofail,x-systemd.automount,hard"}, data: "hard"},
		{in: []string{`context="system_u:object_r:container_file_t:s0:c1,c2",hard`}, data: `context="system_u:object_r:container_file_t:s0:c1,c2",hard`},
		{in: []string{"vers=4.1"}, vers: version{4, 1}},
		{in: []string{"nfsvers=4.2"}, vers: version{4, 2}},
		{in: []string{"nfsvers=3"}, vers: version{major: 3}},
		{in: []string{"v4.0"}, vers: version{4, 0}},
		{in: []string{"vers=4"}, vers: version{4, anyMinor}},
		{in: []string{"vers=4", "minorversion=1"}, vers: version{4, 1}},
		{in: []string{"minorversion=1", "vers=4"}, vers: version{4, 1}},
		{in: []string{"vers=4.2", "vers=3"}, vers: version{major: 3}},
	}
	for _, tt := range tests {
		o, err := ParseOptions(tt.in)
		if err != nil || o.flags != tt.flags || o.version != tt.vers || strings.Join(o.data, ",") != tt.data {
			t.Errorf("ParseOptions(%q) = %+v, %v", tt.in, o, err)
		}
	}
	for _, in := range []string{
		"addr=10.0.0.1", "mounthost=x", "remount", "bind", "rshared", "vers=5", "vers=", "minorversion=3", "v4.9",
		"port=x", "port=70000", "clientaddr=host", "a\x00b", "a\nb",
		`hard="x,addr=10.0.0.1"`, `context="a,addr=10.0.0.1"`, `context="a`, `"ro"`,
	} {
		if o, err := ParseOptions([]string{in}); !errors.Is(err, volume.ErrMountOptions) || !strings.Contains(err.Error(), "mount option") {
			t.Errorf("ParseOptions(%q) = %+v, %v, want ErrMountOptions", in, o, err)
		}
	}
}

func TestOptionsString(t *testing.T) {
	key := func(list ...string) string {
		t.Helper()
		o, err := ParseOptions(list)
		if err != nil {
			t.Fatal(err)
		}
		return o.String()
	}
	if a, b := key("nodev", "hard", "nosuid"), key("hard,nosuid", "nodev"); a != b {
		t.Errorf("the same mount has the keys %q and %q", a, b)
	}
	seen := map[string]bool{}
	for _, list := range []string{"", "ro", "hard", "soft", "vers=3", "vers=4", "vers=4.0", "vers=4.2"} {
		k := key(list)
		if seen[k] {
			t.Errorf("%q has the key of another mount: %q", list, k)
		}
		seen[k] = true
	}
}

func TestDataFor(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	tests := []struct {
		in         string
		v          version
		localLocks bool
		want       string
	}{
		{"", version{4, 2}, false, "vers=4.2,addr=10.0.0.1"},
		{"hard,nconnect=4", version{4, 1}, false, "vers=4.1,hard,nconnect=4,addr=10.0.0.1"},
		{"", version{4, 2}, true, "vers=4.2,addr=10.0.0.1"},
		{"", version{major: 3}, true, "vers=3,nolock,addr=10.0.0.1"},
		{"lock", version{major: 3}, true, "vers=3,lock,addr=10.0.0.1"},
		{"hard", version{major: 3}, false, "vers=3,hard,addr=10.0.0.1"},
	}
	for _, tt := range tests {
		o, err := ParseOptions([]string{tt.in})
		if err != nil {
			t.Fatal(err)
		}
		if got := (Mount{Options: o, LocalLocks: tt.localLocks}).dataFor(tt.v, addr); got != tt.want {
			t.Errorf("%q for %s: %q, want %q", tt.in, tt.v, got, tt.want)
		}
	}
}

func TestProbePort(t *testing.T) {
	tests := map[string]string{
		"":                        portNFS,
		"vers=4.2":                portNFS,
		"port=20490":              "20490",
		"vers=3":                  portRPCBind,
		"vers=3,mountport=20048":  portNFS,
		"vers=3,port=2050":        "2050",
		"proto=rdma,port=20049":   "",
		"rdma":                    "",
		"vers=3,proto=udp":        "",
		"vers=4.2,proto=tcp6":     portNFS,
		"port=1,port=0,nconnect=": portNFS,
	}
	for in, want := range tests {
		o, err := ParseOptions([]string{in})
		if err != nil {
			t.Fatal(err)
		}
		if got, probe := o.probePort(); got != want || probe != (want != "") {
			t.Errorf("%q: port %q, %v, want %q", in, got, probe, want)
		}
	}
}

func TestFamily(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "vers=3": "", "tcp": "", "proto=tcp": "4", "proto=tcp6": "6", "proto=udp6": "6", "proto=rdma": "4", "proto=rdma6": "6",
		"vers=3,mountproto=tcp6": "6", "vers=3,proto=tcp,mountproto=udp": "4",
	} {
		o, err := ParseOptions([]string{in})
		if err != nil {
			t.Fatal(err)
		}
		if got := o.family("nas.example"); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		for _, literal := range []string{"192.0.2.1", "2001:db8::1"} {
			if got := o.family(literal); got != "" {
				t.Errorf("%q of %s: %q", in, literal, got)
			}
		}
	}
}

func TestNextAttempt(t *testing.T) {
	all := version{}.candidates()
	if want := []version{{4, 2}, {4, 1}, {4, 0}, {major: 3}}; !slices.Equal(all, want) {
		t.Fatalf("candidates %v, want %v", all, want)
	}
	tests := []struct {
		tried []version
		at    int
		err   error
		next  int
		more  bool
	}{
		{all, 0, unix.EPROTONOSUPPORT, 1, true},
		{all, 2, unix.EPROTONOSUPPORT, 3, true},
		{all, 3, unix.EPROTONOSUPPORT, 0, false},
		{all, 0, unix.ENOENT, 3, true},
		{all, 3, unix.ENOENT, 0, false},
		{all, 0, unix.EACCES, 0, false},
		{all, 0, unix.ETIMEDOUT, 0, false},
		{version{4, anyMinor}.candidates(), 0, unix.ENOENT, 0, false},
		{version{4, 1}.candidates(), 0, unix.EPROTONOSUPPORT, 0, false},
	}
	for _, tt := range tests {
		next, more := nextAttempt(tt.tried, tt.at, tt.err)
		if more != tt.more || more && next != tt.next {
			t.Errorf("after %s with %v: %d, %v, want %d, %v", tt.tried[tt.at], tt.err, next, more, tt.next, tt.more)
		}
	}
}
