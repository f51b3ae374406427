package reclaim

import (
	"context"

	"golang.org/x/time/rate"
)

// pace spreads changes evenly over time. The zero value does not.
type pace struct{ limiter *rate.Limiter }

func newPace(perSecond int) *pace {
	if perSecond <= 0 {
		return &pace{}
	}
	return &pace{rate.NewLimiter(rate.Limit(perSecond), 1)}
}

// wait waits until the next change is due, or until ctx ends. Without a limit it
// neither locks nor reads the clock, since it is called before every change.
func (p *pace) wait(ctx context.Context) error {
	if p.limiter == nil {
		return ctx.Err()
	}
	return p.limiter.Wait(ctx)
}
