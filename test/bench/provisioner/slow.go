package main

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nfs-csi/nfs-csi/test/bench/internal/report"
)

const (
	slowTarget = 1.5
	// How long the slow volume takes unless the others are done sooner.
	slowVolume = time.Minute
)

// benchSlow: what one volume that takes a minute costs the others.
func benchSlow(ctx context.Context, o options) error {
	var took [2]time.Duration
	for i, slow := range []bool{false, true} {
		err := inBench(ctx, o, func(ctx context.Context, b *bench) (err error) {
			took[i], err = b.besideSlow(ctx, slow)
			return err
		})
		if err != nil {
			return fmt.Errorf("slow %t: %w", slow, err)
		}
	}
	ratio := float64(took[1]) / float64(took[0])
	report.Line{
		Name: fmt.Sprintf("slow/others-%d", o.others), Value: round(took[1]), Floor: round(took[0]),
		Ratio: fmt.Sprintf("%.2f", ratio), Target: fmt.Sprintf("%.2f", slowTarget), OK: ratio <= slowTarget,
	}.Print()
	return nil
}

// besideSlow is how long all volumes but the first take.
func (b *bench) besideSlow(ctx context.Context, slow bool) (time.Duration, error) {
	done := make(chan struct{})
	entered := make(chan struct{}, 1)
	b.driver.OnCreate(func(ctx context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		select {
		case entered <- struct{}{}:
		default:
			return next()
		}
		if slow {
			select {
			case <-done:
			case <-ctx.Done():
			case <-time.After(slowVolume):
			}
		}
		return next()
	})
	if err := b.createClaims(ctx, b.others+1); err != nil {
		return 0, err
	}
	u, err := b.work(ctx, func(w *volumeWatch) error {
		err := w.await(ctx, b.others, saved)
		close(done)
		return err
	})
	return u.time, err
}
