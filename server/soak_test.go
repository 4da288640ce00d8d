package server

import "flag"

// soak makes long tests run at full length: see make soak.
var soak = flag.Bool("soak", false, "run long tests at full length")
