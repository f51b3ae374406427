package main

import "github.com/container-storage-interface/spec/lib/go/csi"

// benchCalls: a call that does nothing. What it costs is in the figure of every
// other call, and in no floor.
func benchCalls(b *bench) error {
	for _, p := range parallels {
		probe, err := measure(p.n, b.rounds/p.n, b.probe)
		if err != nil {
			return err
		}
		fact(b.name("probe/"+p.name), probe)
	}
	return nil
}

func (b *bench) probe(int) error {
	_, err := csi.NewIdentityClient(b.conn).Probe(b.ctx, &csi.ProbeRequest{})
	return err
}
