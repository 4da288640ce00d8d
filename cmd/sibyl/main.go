// Command sibyl reports which requests are slow, where on their critical path, why, and which tracepoints to enable next.
package main

import (
	"os"

	"github.com/sibyl-trace/sibyl/cmd/internal/cli"
)

func main() {
	ctx, stop := cli.Interruptible()
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
