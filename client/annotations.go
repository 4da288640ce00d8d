package client

import (
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// annotations writes the section with deploys and other events. It writes nothing if `all` is empty.
func (p *page) annotations(all []contract.Annotation) {
	if len(all) == 0 {
		return
	}
	p.printf("\n%s\n", p.bold("Annotations"))
	for i := range all {
		x := &all[i]
		p.printf("  %s  %-6s  %s\n", x.At.Local().Format(time.DateTime), x.Kind, clean(x.Title))
	}
}
