package describe

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Folded writes profiles as folded stacks, the input format of flame-graph tools: one calling context per line, with
// its own time in ns, summed over all requests. The first frame is the request type. Names must not contain line
// breaks.
func Folded(w io.Writer, profiles []Profile) error {
	out := bufio.NewWriter(w)
	for i := range profiles {
		p := &profiles[i]
		for k := range p.Frames {
			if ns := p.Nanos(k); ns > 0 {
				fmt.Fprintf(out, "%s %d\n", FoldedStack(p.Stack(k)), ns)
			}
		}
	}
	return out.Flush()
}

// FoldedStack joins frames with semicolons. It first replaces the semicolons in frames with colons, in place.
func FoldedStack(frames []string) string {
	for i, f := range frames {
		frames[i] = strings.ReplaceAll(f, ";", ":")
	}
	return strings.Join(frames, ";")
}
