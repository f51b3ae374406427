package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// Crash kills a component, "kube-apiserver" for example, and returns what starts
// it again as it was and waits until the API server is ready.
func (c *Cluster) Crash(name string) (restart func(context.Context) error, err error) {
	at := slices.IndexFunc(c.processes, func(p *Process) bool { return p.name == name })
	if at < 0 {
		return nil, fmt.Errorf("no %s runs", name)
	}
	crashed := c.processes[at]
	if err := crashed.Kill(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		process, err := StartProcess(filepath.Dir(crashed.Log), name, crashed.cmd.Path, crashed.cmd.Args[1:]...)
		if err != nil {
			return err
		}
		c.processes[at] = process
		return c.await(ctx, name, func(ctx context.Context) error {
			return c.Admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		})
	}, nil
}
