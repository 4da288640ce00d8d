package server

import "flag"

// soak makes tests run as long as somebody who doubts would let them: see make soak.
var soak = flag.Bool("soak", false, "run long tests at full length")
