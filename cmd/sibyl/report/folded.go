package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/sibyl-trace/sibyl/cmd/sibyl/terminal"
	"github.com/sibyl-trace/sibyl/engine"
)

// Folded writes the critical paths of all request types as folded stacks, one calling context a line with its exclusive
// nanoseconds over all requests: what flame-graph tools read. The first frame is the request type.
func Folded(w io.Writer, r *engine.Report) error {
	out := bufio.NewWriter(w)
	for _, p := range profiles(newNames(r, terminal.Printable), r) {
		for i := range p.Frames {
			if ns := p.nanos(i); ns > 0 {
				fmt.Fprintf(out, "%s %d\n", foldedStack(p.stack(i)), ns)
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
