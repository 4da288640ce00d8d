// Command sibyl tells which requests misbehave, where on their critical path, why, and what to instrument next.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// From then on a second signal ends the process at once, whatever it is busy with. Before, it may be the same one again: who ends a group of
	// processes often sends it to the group and to its first process, too.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
