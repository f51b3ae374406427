// Command rooms prints the size of the product's packages and the coupling between their
// files: `go run ./rooms [CHECKOUT]` in hack.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/nfs-csi/nfs-csi/hack/internal/rooms"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rooms:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	checkout := ".."
	switch len(args) {
	case 0:
	case 1:
		checkout = args[0]
	default:
		return fmt.Errorf("usage: rooms [CHECKOUT]")
	}
	measured, err := rooms.Measure(ctx, checkout, "./pkg/...", "./cmd/...")
	if err != nil {
		return err
	}
	return rooms.Print(os.Stdout, measured)
}
