package inventory

import (
	"context"
	"fmt"

	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Page of a list.
type Page struct {
	Volumes []volumes.Volume
	// Next is the token of the next page, empty after the last one.
	Next string
}

// List lists the volumes that have records, up to limit of them, 0 for all. A page costs
// the reading of its own records; the names are read once for all pages.
//
// Errors: volume.ErrToken, those of share.Cache.
func (i *Inventory) List(ctx context.Context, limit int, token string) (Page, error) {
	start, err := parseToken(token)
	if err != nil {
		return Page{}, fmt.Errorf("list volumes: %w", err)
	}
	var page Page
	last := ""
	for _, export := range i.from(start.export) {
		want := 0
		if limit > 0 {
			want = limit + 1 - len(page.Volumes) // one more shows whether there is a next page
		}
		more, err := i.listExport(ctx, export, start.in(export), want)
		if err != nil {
			return Page{}, fmt.Errorf("list volumes on %s: %w", export, err)
		}
		for _, v := range more {
			if limit > 0 && len(page.Volumes) == limit {
				page.Next = last
				return page, nil
			}
			page.Volumes = append(page.Volumes, v.Volume)
			last = position{export.String(), v.path}.token()
		}
	}
	return page, nil
}

// listed is a volume and the path of its record.
type listed struct {
	volumes.Volume
	path string
}

func (i *Inventory) listExport(ctx context.Context, export volume.Export, after string, want int) ([]listed, error) {
	t := i.Target(session.Key{Export: export, SubDir: volume.MetaDir}, nil)
	return session.Result(ctx, i.cfg.Exports.View, t, func(ctx context.Context, x *session.Session) ([]listed, error) {
		recs, err := walk(ctx, x, i.listings.names(export, after == ""), after, want)
		var list []listed
		for _, rec := range recs {
			if v, err := volumes.Of(rec); err == nil && v.ID.Export == export {
				list = append(list, listed{v, rec.SubDir})
				i.Saw(rec.SubDir, v.ID)
			}
		}
		return list, err
	})
}
