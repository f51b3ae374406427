package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nfs-csi/nfs-csi/test/bench/internal/report"
)

const (
	createWritesTarget = 3
	deleteWritesTarget = 2
	// Claims that are made together share the journal's.
	journalTarget = 0.1
	// The caches are filled by a few lists, however many claims there are.
	readsTarget = 0.1

	settleInterval = 500 * time.Millisecond
)

// benchBound counts the requests to the API server while kube-controller-manager
// binds the volumes, releases them and takes part in their end. The requests
// counted are of kinds that it does not make, but for its own events.
func benchBound(ctx context.Context, o options) error {
	return inBench(ctx, o, func(ctx context.Context, b *bench) error {
		// No limit of its own that would stretch the work.
		if err := b.cluster.StartControllers("--kube-api-qps=1000", "--kube-api-burst=1000"); err != nil {
			return err
		}
		watch, err := b.watchVolumes(ctx)
		if err != nil {
			return err
		}
		defer watch.stop()
		process, err := b.start()
		if err != nil {
			return err
		}
		if err := b.countRequests(ctx, watch, o.bound); err != nil {
			return errors.Join(err, process.Kill(), errors.New(process.Tail()))
		}
		resident, err := report.ResidentMiB(process.PID())
		report.AtMost("bound/memory", resident, residentTarget, "MiB")
		return errors.Join(err, stop(process))
	})
}

func (b *bench) countRequests(ctx context.Context, watch *volumeWatch, n int) error {
	before, err := b.requests(ctx)
	if err != nil {
		return err
	}
	if err := b.createClaims(ctx, n); err != nil {
		return err
	}
	if err := watch.await(ctx, n, bound); err != nil {
		return err
	}
	between, err := b.settled(ctx)
	if err != nil {
		return err
	}
	made := between.since(before)
	others, err := b.eventsOfOthers(ctx)
	if err != nil {
		return err
	}
	each("bound/create-writes", made.sum(volumePost)+made.sum(event)-others, n, createWritesTarget)
	each("bound/create-journal-writes", made.sum(journal), n, journalTarget)
	each("bound/create-reads", made.sum(claimOrVolumeRead), n, readsTarget)
	err = inParallel(ctx, n, func(ctx context.Context, i int) error {
		return b.client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, claimName(i), metav1.DeleteOptions{})
	})
	if err != nil {
		return err
	}
	if err := watch.await(ctx, n, gone); err != nil {
		return err
	}
	after, err := b.settled(ctx)
	if err != nil {
		return err
	}
	ended := after.since(between)
	each("bound/delete-writes", ended.sum(volumeEnd)+ended.sum(event)+ended.sum(journal), n, deleteWritesTarget)
	// kube-controller-manager reads claims before it gives up on their volumes.
	each("bound/delete-reads", ended.sum(volumeRead), n, readsTarget)
	each("bound/delete-not-found", ended.sum(notFound), n, 0)
	made.show("created")
	ended.show("deleted")
	return nil
}

// eventsOfOthers is how many kube-controller-manager has written: one of each claim
// that it meets before its volume is there.
func (b *bench) eventsOfOthers(ctx context.Context) (count int, err error) {
	list, err := b.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for _, event := range list.Items {
		if event.Source.Component == "persistentvolume-controller" {
			count++
		}
	}
	return count, nil
}

// settled waits until no more requests come: events are sent after the fact.
func (b *bench) settled(ctx context.Context) (requests, error) {
	last, err := b.requests(ctx)
	for err == nil {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(settleInterval):
		}
		var next requests
		next, err = b.requests(ctx)
		if err == nil && next.since(last).sum(ours) == 0 {
			return next, nil
		}
		last = next
	}
	return nil, err
}

func ours(r request) bool { return volumePost(r) || volumeEnd(r) || event(r) || journal(r) }

func volumePost(r request) bool { return r.resource == "persistentvolumes" && r.verb == "POST" }

// kube-controller-manager updates volumes, it does not patch or delete them.
func volumeEnd(r request) bool {
	return r.resource == "persistentvolumes" && (r.verb == "PATCH" || r.verb == "DELETE")
}

func event(r request) bool { return r.resource == "events" && (r.verb == "POST" || r.verb == "PATCH") }

func journal(r request) bool { return r.resource == "configmaps" && !read(r) && r.verb != "WATCH" }

func volumeRead(r request) bool { return r.resource == "persistentvolumes" && read(r) }

func claimOrVolumeRead(r request) bool {
	return volumeRead(r) || r.resource == "persistentvolumeclaims" && read(r)
}

func notFound(r request) bool { return volumeEnd(r) && r.code == "404" }

// show writes every kind to the log, for whoever looks for what costs.
func (r requests) show(what string) {
	for kind, n := range r {
		switch kind.resource {
		case "persistentvolumes", "persistentvolumeclaims", "events", "configmaps":
			fmt.Fprintf(os.Stderr, "bench: %s: %s %s %s: %d\n", what, kind.verb, kind.resource, kind.code, n)
		}
	}
}
