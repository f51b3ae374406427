package main

import (
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

const fewVolumes, pageSize = 100, 500

// benchFull: create, delete and a page of the list with many volumes on the
// export, beside the same with few. With few the page is not full: it is counted
// by the entry.
func benchFull(b *bench) error {
	if b.network != roundTrip(0) {
		return nil // the server's cost; a round trip only hides it
	}
	if err := b.populate(0, fewVolumes); err != nil {
		return err
	}
	few, err := b.costs("few")
	if err != nil {
		return err
	}
	if err := b.populate(fewVolumes, b.many); err != nil {
		return err
	}
	many, err := b.costs("many")
	if err != nil {
		return err
	}
	for i, what := range []string{"create-volume", "delete-volume", "list-entry"} {
		figure(b.name(fmt.Sprintf("%s/at-%d-volumes", what, b.many)), many[i].percentile(50), few[i].percentile(50), 1.5)
	}
	return nil
}

func (b *bench) populate(from, to int) error {
	const workers = 10
	_, err := measure(workers, (to-from)/workers, func(i int) error {
		_, err := b.create(fmt.Sprintf("kept-%d", from+i), "xfs")
		return err
	})
	return err
}

// costs of a creation, of a deletion and of a page of the list.
func (b *bench) costs(name string) ([3]samples, error) {
	made := make([]*csi.Volume, b.rounds)
	create, err := measure(1, b.rounds, func(i int) (err error) {
		made[i], err = b.create(fmt.Sprintf("%s-%d", name, i), "xfs")
		return err
	})
	if err != nil {
		return [3]samples{}, err
	}
	remove, err := measure(1, b.rounds, func(i int) error { return b.delete(made[i]) })
	if err != nil {
		return [3]samples{}, err
	}
	entries := 0
	list, err := measure(1, 5, func(int) error {
		page, err := b.controller.ListVolumes(b.ctx, &csi.ListVolumesRequest{MaxEntries: pageSize})
		entries = len(page.GetEntries())
		return err
	})
	for i := range list {
		list[i] /= time.Duration(max(entries, 1))
	}
	return [3]samples{create, remove, list}, err
}
