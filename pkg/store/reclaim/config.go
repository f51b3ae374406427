package reclaim

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/store/session"
)

const (
	// AbandonedAfter is the age from which a temporary file counts as left by a dead
	// process; a live one, also of another controller, needs it for seconds.
	AbandonedAfter = time.Hour
	// debounce is how long no volume may be deleted before a pass begins: less than
	// anybody waits for space.
	debounce = 50 * time.Millisecond
)

// Config of a Reclaimer.
type Config struct {
	Exports *session.Exports
	// Workers is how many directories of a deleted volume are emptied at a time.
	Workers int
	// Rate is how many entries are removed a second on each export, 0 for no limit.
	Rate int
	// Upkeep is called during a pass over an export whenever new trees have had their
	// first slices. It is to return early when waiting reports new ones.
	Upkeep func(ctx context.Context, x *session.Session, waiting func() bool)
	// Debounce and AbandonedAfter are 0 for the defaults, other than in tests.
	Debounce, AbandonedAfter time.Duration
}

// complete checks the configuration and sets defaults.
func (c Config) complete() (Config, error) {
	if c.Exports == nil || c.Upkeep == nil || c.Workers < 1 || c.Rate < 0 {
		return Config{}, errors.New("reclaim: exports, upkeep, at least one worker and a rate that is not negative are needed")
	}
	c.Debounce = cmp.Or(c.Debounce, debounce)
	c.AbandonedAfter = cmp.Or(c.AbandonedAfter, AbandonedAfter)
	return c, nil
}
