// Command sibylbench measures Sibyl: its speed, and how well it finds faults that are simulated, recorded, or injected into a demo application.
package main

import (
	"os"

	"github.com/sibyl-trace/sibyl/cmd/internal/cli"
)

func main() {
	ctx, stop := cli.Interruptible()
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
