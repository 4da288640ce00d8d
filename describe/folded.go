package describe

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Folded writes profiles as folded stacks, one calling context a line with its exclusive nanoseconds over all requests: what
// flame-graph tools read. The first frame is the request type. Names must be free of line breaks.
func Folded(w io.Writer, profiles []Profile) error {
	out := bufio.NewWriter(w)
	for i := range profiles {
		p := &profiles[i]
		for k := range p.Frames {
			if ns := p.Nanos(k); ns > 0 {
				fmt.Fprintf(out, "%s %d\n", foldedStack(p.Stack(k)), ns)
			}
		}
	}
	return out.Flush()
}

// foldedStack joins frames by semicolons, which frames themselves therefore cannot hold.
func foldedStack(frames []string) string {
	for i, f := range frames {
		frames[i] = strings.ReplaceAll(f, ";", ":")
	}
	return strings.Join(frames, ";")
}
