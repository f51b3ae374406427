package store

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// known are the exports that this process is to list or has used, with the mount options that
// worked, and the volumes it has seen on them.
type known struct {
	mu      sync.Mutex
	exports map[volume.Export]*knownExport
}

type knownExport struct {
	options []string
	ids     map[string]string // by where their records lie
}

func (k *known) add(export volume.Export, options []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.exports == nil {
		k.exports = map[volume.Export]*knownExport{}
	}
	if k.exports[export] == nil {
		k.exports[export] = &knownExport{options: options, ids: map[string]string{}}
	}
}

// mounted is add with options that are newer than those of before.
func (k *known) mounted(export volume.Export, options []string) {
	k.add(export, options)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.exports[export].options = options
}

func (k *known) options(export volume.Export) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.exports[export]; e != nil {
		return e.options
	}
	return nil
}

func (k *known) saw(place string, id volume.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.exports[id.Export]; e != nil {
		e.ids[place] = id.String()
	}
}

func (k *known) forget(id volume.ID) {
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
	var list []volume.Export
	for e := range k.exports {
		if e.String() >= name {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b volume.Export) int { return cmp.Compare(a.String(), b.String()) })
	return list
}

// seen lists, in order, where the records of the volumes below the export lay when
// they were seen last, and their IDs.
func (k *known) seen(export volume.Export) (places []string, ids map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.exports[export]; e != nil {
		ids = maps.Clone(e.ids)
	}
	return slices.SortedFunc(maps.Keys(ids), comparePaths), ids
}
