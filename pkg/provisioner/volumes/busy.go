package volumes

import (
	"errors"
	"sync"
)

var errBusy = errors.New("another try for the same volume is under way")

// busy are the volumes that are being worked on, by name.
type busy struct{ names sync.Map }

// start returns false if the volume is being worked on already.
func (b *busy) start(name string) bool {
	_, busy := b.names.LoadOrStore(name, nil)
	return !busy
}

func (b *busy) end(name string) { b.names.Delete(name) }
