package inventory

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// known are the exports to list, with the mount options that worked, and the volumes
// that were seen on them.
type known struct {
	mu      sync.Mutex
	exports map[volume.Export]*knownExport
}

type knownExport struct {
	options []string
	ids     map[string]string // by the paths of their records
}

// Opened adds the target's export to the lists. Only the options of an exact target replace older ones.
func (k *known) Opened(t session.Target) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.exports[t.Key.Export]
	if e == nil {
		k.exports[t.Key.Export] = &knownExport{options: t.MountOptions, ids: map[string]string{}}
	} else if t.Exact {
		e.options = t.MountOptions
	}
}

func (k *known) options(export volume.Export) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.exports[export]; e != nil {
		return e.options
	}
	return nil
}

// Saw notes a volume, by the path of its record.
func (k *known) Saw(path string, id volume.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.exports[id.Export]; e != nil {
		e.ids[path] = id.String()
	}
}

// Forget drops a volume that was deleted.
func (k *known) Forget(id volume.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.exports[id.Export]; e != nil {
		delete(e.ids, id.SubDir)
		delete(e.ids, volumes.SharedPath(id))
	}
}

// from lists the exports in order, from the one of that name on.
func (k *known) from(name string) []volume.Export {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := slices.Collect(maps.Keys(k.exports))
	list = slices.DeleteFunc(list, func(e volume.Export) bool { return e.String() < name })
	slices.SortFunc(list, func(a, b volume.Export) int { return cmp.Compare(a.String(), b.String()) })
	return list
}

// seen returns the volumes that were seen on the export: the paths of their records, in
// order, and their IDs.
func (k *known) seen(export volume.Export) (paths []string, ids map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.exports[export]; e != nil {
		ids = maps.Clone(e.ids)
	}
	return slices.SortedFunc(maps.Keys(ids), comparePaths), ids
}
