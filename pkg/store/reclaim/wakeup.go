package reclaim

// wakeup is a request for a pass; further ones before the pass begins are the same.
type wakeup chan struct{}

func newWakeup() wakeup { return make(wakeup, 1) }

func (w wakeup) request() {
	select {
	case w <- struct{}{}:
	default:
	}
}

func (w wakeup) pending() bool { return len(w) > 0 }

// consume reports whether there was a request.
func (w wakeup) consume() bool {
	select {
	case <-w:
		return true
	default:
		return false
	}
}
