package server

import "flag"

var (
	// long makes TestKilled kill the server as often as CI wants: see make test-long.
	long = flag.Bool("long", false, "kill the server often")
	// soak makes long tests run at full length: see make soak.
	soak = flag.Bool("soak", false, "run long tests at full length")
)
