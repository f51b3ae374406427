package node

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// mountState puts what the node writes onto its disk: overlayfs does not take a
// tmpfs of the guest's size, and images are large.
func mountState(c Config) error {
	const base = "/var/lib/node"
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(c.Disk, base, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount the node's disk: %w", err)
	}
	for _, name := range []string{"containerd", "kubelet", "etcd", "cni"} {
		source, target := base+"/"+name, "/var/lib/"+name
		if err := os.MkdirAll(source, 0o700); err != nil {
			return err
		}
		if err := os.MkdirAll(target, 0o700); err != nil {
			return err
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", target, err)
		}
		if err := unix.Mount("", target, "", unix.MS_SHARED, ""); err != nil {
			return err
		}
	}
	return nil
}

// setUpNetwork gives the node an address, and the API server its service
// address on the same interface: with the server on port 443 no kube-proxy is
// needed to reach it from a pod.
func setUpNetwork(Config) error {
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "dummy0"}}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add dummy0: %w", err)
	}
	for _, a := range []string{Address + "/16", serviceAddress + "/32"} {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add address %s: %w", a, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	// The kubelet looks for the default route to find its address.
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(10, 64, 0, 254)}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("add the default route: %w", err)
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// writeCPUInfo adds the clock speed that cadvisor insists on and User Mode
// Linux does not tell.
func writeCPUInfo(Config) error {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	const copied = stateDir + "/cpuinfo"
	info = bytes.Replace(info, []byte("model name"), []byte("cpu MHz\t\t: 2000.000\nmodel name"), 1)
	if err := os.WriteFile(copied, info, 0o644); err != nil {
		return err
	}
	if err := unix.Mount(copied, "/proc/cpuinfo", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind /proc/cpuinfo: %w", err)
	}
	return nil
}

// delegateCgroups lets containers have every controller that there is.
func delegateCgroups(Config) error {
	const root = "/sys/fs/cgroup/"
	list, err := os.ReadFile(root + "cgroup.controllers")
	if err != nil {
		return err
	}
	enable := "+" + strings.Join(strings.Fields(string(list)), " +")
	if err := os.WriteFile(root+"cgroup.subtree_control", []byte(enable), 0); err != nil {
		return fmt.Errorf("delegate cgroup controllers %q: %w", enable, err)
	}
	return nil
}
