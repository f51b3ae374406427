package rpc

import (
	"context"
	"errors"
	"fmt"

	csirpc "github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Prober checks a CSI driver's health through its socket, like any other caller.
type Prober struct {
	conn *grpc.ClientConn
}

// NewProber takes an endpoint like Listen. It connects on first use.
func NewProber(endpoint string) (*Prober, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	return &Prober{conn: conn}, nil
}

// Check returns why the driver is not ready, or nil.
func (p *Prober) Check(ctx context.Context) error {
	ready, err := csirpc.Probe(ctx, p.conn)
	if err == nil && !ready {
		err = errors.New("the driver is not ready")
	}
	return err
}

// Close ends the connection.
func (p *Prober) Close() error { return p.conn.Close() }
