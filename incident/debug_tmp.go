package incident

import (
	"fmt"
	"os"
)

var debugOn = os.Getenv("DBG") != ""

func debugf(f string, a ...any) {
	if debugOn {
		fmt.Fprintf(os.Stderr, f, a...)
	}
}
