// Command sibylbench measures Sibyl's speed and its accuracy on simulated faults, recorded faults, and faults injected
// into a demo application.
package main

import (
	"os"

	"github.com/sibyl-trace/sibyl/internal/cli"
)

func main() {
	ctx, stop := cli.Interruptible()
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
