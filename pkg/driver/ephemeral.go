package driver

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Ephemeral lists what inline volumes may mount. Anyone who may create pods writes
// their attributes, so only what is listed is allowed.
type Ephemeral struct {
	// Servers as "server" or "server:/share", which includes everything below.
	Servers []string
	// MountOptions by name or as name=value.
	MountOptions []string
}

// parse checks the list of servers.
func (e *Ephemeral) parse() ([]volume.Export, error) {
	var allowed []volume.Export
	for _, s := range e.Servers {
		server, share, _ := strings.Cut(s, ":/")
		export, err := volume.ParseExport(server, "/"+share)
		if err != nil {
			return nil, fmt.Errorf("server %q for ephemeral volumes: %w", s, err)
		}
		allowed = append(allowed, export)
	}
	if len(allowed) == 0 {
		return nil, errors.New("ephemeral volumes are enabled and no server is allowed for them")
	}
	return allowed, nil
}

// inlineID is the form of kubelet's IDs of inline volumes. They identify such volumes
// even if the CSIDriver object does not make kubelet say so.
var inlineID = regexp.MustCompile(`^csi-[0-9a-f]{64}$`)

func isInline(req *csi.NodePublishVolumeRequest) bool {
	return volume.IsEphemeral(req.GetVolumeContext()) || inlineID.MatchString(req.GetVolumeId())
}

// checkInline reports why an inline volume may not be mounted.
func (e *Ephemeral) checkInline(a volume.Attributes, options []string) error {
	if e == nil {
		return fmt.Errorf("%w: inline volumes of pods need nfsplugin --enable-ephemeral; use a claim", volume.ErrUnsupported)
	}
	allowed, err := e.parse()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(allowed, func(in volume.Export) bool { return within(a, in) }) {
		return fmt.Errorf("%w: %s, allowed are %s", errNotAllowed, a.Export.Source(a.SubDir), strings.Join(e.Servers, ", "))
	}
	if err := nfsmount.CheckAllowed(options, e.MountOptions); err != nil {
		return fmt.Errorf("%w: %w", errNotAllowed, err)
	}
	return nil
}

// within tells whether the volume is an allowed export or a directory below it.
func within(a volume.Attributes, in volume.Export) bool {
	dir := path.Join("/", a.Export.Share, a.SubDir)
	return sameServer(a.Export.Server, in.Server) &&
		(in.Share == "/" || dir == in.Share || strings.HasPrefix(dir, in.Share+"/"))
}

func sameServer(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX == nil && errY == nil {
		return x.Unmap() == y.Unmap()
	}
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

// inlineOptions are the options of an inline volume: version 4, and neither setuid nor
// device files, which a pod could plant on a share to gain privileges.
func inlineOptions(list []string) (nfsmount.Options, error) {
	o, err := nfsmount.ParseOptions(append(slices.Clone(list), "nosuid", "nodev"))
	if err != nil {
		return nfsmount.Options{}, err
	}
	return o.Version4()
}
