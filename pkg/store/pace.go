package store

import (
	"context"

	"golang.org/x/time/rate"
)

// pace spreads what is done evenly over time. The zero value does not.
type pace struct{ limiter *rate.Limiter }

func newPace(perSecond int) *pace {
	if perSecond <= 0 {
		return &pace{}
	}
	return &pace{rate.NewLimiter(rate.Limit(perSecond), 1)}
}

// wait until it is the caller's turn, or until ctx ends. Without a limit it neither
// locks nor asks the clock, since it is called before every change.
func (p *pace) wait(ctx context.Context) error {
	if p.limiter == nil {
		return ctx.Err()
	}
	return p.limiter.Wait(ctx)
}
