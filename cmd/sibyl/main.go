// Command sibyl finds slow and erratic requests, locates the delay on their critical path, and decides which
// tracepoints to enable next.
//
// The command tree is in root.go, with one file per command. docs/ARCHITECTURE.md leads from here to the decision.
package main

import (
	"os"

	"github.com/sibyl-trace/sibyl/internal/cli"
)

func main() {
	ctx, stop := cli.Interruptible()
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
