package search

import (
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/trace"
)

// waitPrefix begins the names of the spans of kernel waits, before the class of the wait.
const waitPrefix = "wait "

// waits describe the classes of waits as predicates.
var waits = map[string]string{
	"preempted": "waiting for a CPU (preempted by other threads)",
	"runqueue":  "waiting for a CPU (on a run queue)",
	"file":      "waiting for the disk (files)",
	"sync":      "waiting for the disk (fsync)",
	"fault":     "waiting for memory (page faults)",
	"net":       "waiting for the network",
	"dns":       "waiting for DNS",
	"unix":      "waiting for another process (Unix socket)",
	"pipe":      "waiting for a pipe",
	"epoll":     "waiting for events (epoll)",
	"poll":      "waiting for descriptors (poll)",
	"futex":     "waiting for a lock (futex)",
	"sleep":     "sleeping",
	"iouring":   "waiting for io_uring",
	"child":     "waiting for a child process",
	"tty":       "waiting for a terminal",
}

// hostAttributes name the machine or the instance on which a span ran, the most readable first.
var hostAttributes = []struct{ key, noun string }{{"host.name", "host"}, {"k8s.pod.name", "pod"}, {"service.instance.id", "instance"}}

// leastHost is the fraction of the variance that a host must account for to be named.
const leastHost = 0.25

// waitSentence describes a wait in the kernel that carries a share of p: its class, the service, and the host that
// stands out, if any does.
func waitSentence(share float64, op trace.Op, p *detect.Problem, table *trace.Table) string {
	predicate := "waiting in the kernel"
	if table == nil {
		return part(share) + " of it is " + predicate
	}
	operation := table.Operation(op)
	if class, ok := strings.CutPrefix(table.Text(operation.Name), waitPrefix); ok && waits[class] != "" {
		predicate = waits[class]
	}
	text := part(share) + " of it is " + predicate
	if service := table.Text(operation.Service); service != "" {
		text += " in " + service
	}
	return text + hostOf(p)
}

// hostOf names the host that accounts for much of the variance of p, like ", on host b"; "" if none does.
func hostOf(p *detect.Problem) string {
	for _, a := range hostAttributes {
		at := slices.IndexFunc(p.Explanations, func(e detect.Explanation) bool {
			return e.Variable == a.key && e.Value != "" && e.Effect >= leastHost && e.PValue <= 0.05
		})
		if at >= 0 {
			return ", on " + a.noun + " " + p.Explanations[at].Value
		}
	}
	return ""
}
