package store

import (
	"context"
	"fmt"

	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Page of a list.
type Page struct {
	Volumes []Created
	// Next is the token of the next page, empty after the last one.
	Next string
}

// List lists the volumes that have records on the exports that were configured or
// that this process has used since it started, up to limit of them, 0 for all. A page costs the reading of
// its own records; the names are read once for all pages.
//
// Errors: volume.ErrToken, those of share.Cache.
func (s *Store) List(ctx context.Context, limit int, token string) (Page, error) {
	start, err := parseToken(token)
	if err != nil {
		return Page{}, fmt.Errorf("list volumes: %w", err)
	}
	var page Page
	last := ""
	for _, export := range s.known.from(start.export) {
		want := 0
		if limit > 0 {
			want = limit + 1 - len(page.Volumes) // one more tells whether there is a next page
		}
		more, err := s.listExport(ctx, export, start.in(export), want)
		if err != nil {
			return Page{}, fmt.Errorf("list volumes on %s: %w", export, err)
		}
		for _, v := range more {
			if limit > 0 && len(page.Volumes) == limit {
				page.Next = last
				return page, nil
			}
			page.Volumes = append(page.Volumes, v.Created)
			last = position{export.String(), v.place}.token()
		}
	}
	return page, nil
}

// listed is a volume, and where its record lies.
type listed struct {
	Created
	place string
}

func (s *Store) listExport(ctx context.Context, export volume.Export, after string, want int) ([]listed, error) {
	t := s.anyShare(export, volume.MetaDir, nil)
	return session.View(ctx, s.exports, t, func(ctx context.Context, x *session.Session) ([]listed, error) {
		recs, err := walk(ctx, x, s.listings.take(export, after == ""), after, want)
		var volumes []listed
		for _, rec := range recs {
			if id, err := volume.ParseID(rec.ID); err == nil && id.Export == export {
				volumes = append(volumes, listed{Created{ID: id, Capacity: rec.Capacity}, rec.SubDir})
				s.known.saw(rec.SubDir, id)
			}
		}
		return volumes, err
	})
}
