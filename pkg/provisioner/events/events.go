// Package events lets a process write its last events about Kubernetes objects before it
// ends. A broadcaster of client-go writes in the background, does not tell when it has
// finished, and drops what it has queued when it is shut down.
package events

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// quiet is how long no event may be written until no broadcaster has one queued, which
	// takes an event from its queue at once.
	quiet = 50 * time.Millisecond
	// settleLimit bounds Settle.
	settleLimit = 2 * time.Second
)

// Client is a client that knows what broadcasters write with it. It is not for informers,
// which look for methods that it hides.
type Client struct {
	kubernetes.Interface

	writing atomic.Int32
	written chan struct{}
}

// NewClient returns a Client for broadcasters.
func NewClient(client kubernetes.Interface) *Client {
	return &Client{Interface: client, written: make(chan struct{}, 1)}
}

// Settle waits until the events that were recorded before are written. It gives up after
// two seconds: the API server may be gone.
func (c *Client) Settle() {
	limit := time.NewTimer(settleLimit)
	defer limit.Stop()
	for {
		pause := time.NewTimer(quiet)
		select {
		case <-limit.C:
			return
		case <-c.written:
			pause.Stop()
		case <-pause.C:
			if c.writing.Load() == 0 {
				return
			}
		}
	}
}

// CoreV1 implements kubernetes.Interface.
func (c *Client) CoreV1() typedcorev1.CoreV1Interface { return core{c.Interface.CoreV1(), c} }

type core struct {
	typedcorev1.CoreV1Interface
	client *Client
}

func (c core) Events(namespace string) typedcorev1.EventInterface {
	return sink{c.CoreV1Interface.Events(namespace), c.client}
}

// sink has the methods that EventSinkImpl calls.
type sink struct {
	typedcorev1.EventInterface
	client *Client
}

func (s sink) CreateWithEventNamespace(event *corev1.Event) (*corev1.Event, error) {
	defer s.client.write()()
	return s.CreateWithEventNamespaceWithContext(context.Background(), event)
}

func (s sink) PatchWithEventNamespace(event *corev1.Event, data []byte) (*corev1.Event, error) {
	defer s.client.write()()
	return s.PatchWithEventNamespaceWithContext(context.Background(), event, data)
}

// write begins to write an event, and returns a function that ends it.
func (c *Client) write() (end func()) {
	c.writing.Add(1)
	return func() {
		c.writing.Add(-1)
		select {
		case c.written <- struct{}{}:
		default:
		}
	}
}
