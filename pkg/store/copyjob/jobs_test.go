package copyjob

import (
	"context"
	"testing"
	"time"
)

// The error of a call whose time is up must still reach the caller.
func TestAnswerComesBeforeTheDeadline(t *testing.T) {
	for patience, want := range map[time.Duration]time.Duration{
		100 * time.Second: 99 * time.Second,
		5 * time.Second:   4500 * time.Millisecond,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ends, _ := ctx.Deadline()
		earlier, stop := beforeDeadline(ctx)
		defer stop()
		answers, _ := earlier.Deadline()
		if early := ends.Sub(answers); early > patience-want || early < (patience-want)*9/10 {
			t.Errorf("of %s the answer has %s, want %s", patience, patience-early, want)
		}
	}
}
