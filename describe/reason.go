package describe

import (
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Reason is the reason for added latency at a located place, according to the kernel. The zero value is unknown.
type Reason struct {
	Wait     trace.Op     // waits in the kernel; may be 0
	Share    float64      // of the added latency, in these waits; 0 if unknown
	Function trace.Op     // waiting function; 0 if only the service is known
	Host     trace.Symbol // host of the waiting threads; 0 if unknown
	Computes bool         // the place waits for nothing in the kernel
}

// Located describes a place with its share of the added latency, which is 0 if unknown, and the reason why: "orders
// audit.append carries 93 % of the added latency", or "93 % of the added latency is waiting for the disk (fsync) in
// orders audit.append, on host b". The place may itself be a wait.
func Located(n *Names, place trace.Op, share float64, why Reason) (s Sentence) {
	if why.Wait == 0 && detect.WaitClass(n.Table, place) != "" {
		why = Reason{Wait: place, Share: share}
	}
	if why.Wait == 0 {
		if share > 0 {
			s.Strong(n.Op(place))
			s.Plain(" carries ")
			s.Strong(units.Share(share))
			s.Plain(" of the added latency")
		} else {
			s.Plain("the place is ")
			s.Strong(n.Op(place))
		}
		if why.Computes {
			s.Plain(": it computes, or waits inside its own process (the kernel sees no wait)")
		}
		return s
	}
	if why.Share > 0 {
		s.Strong(units.Share(why.Share))
		s.Plain(" of the added latency is ")
	} else {
		s.Plain("the time is lost ")
	}
	s.Strong(detect.Waiting(detect.WaitClass(n.Table, why.Wait)))
	s.Plain(" in ")
	s.Strong(waiter(n, place, &why))
	if why.Host != 0 {
		s.Plain(", on host ")
		s.Strong(n.Text(why.Host))
	}
	return s
}

// waiter returns the name of the function that waits, or of the place if the function is unknown. If the place is itself
// the wait, it returns the name of its service.
func waiter(n *Names, place trace.Op, why *Reason) string {
	if why.Function != 0 {
		return n.Op(why.Function)
	}
	if place != why.Wait {
		return n.Op(place)
	}
	return n.NamedService(n.Table.Operation(why.Wait).Service)
}

// waitRemedy returns the next step for a place that waits in the kernel. why.Wait must not be 0.
func waitRemedy(n *Names, place trace.Op, why *Reason) string {
	where := waiter(n, place, why)
	host := n.Text(why.Host)
	on := "its host"
	if host != "" {
		on = "host " + host
	}
	text := ""
	switch class := detect.WaitClass(n.Table, why.Wait); class {
	case "preempted", "runqueue":
		text = "Look at the other programs on " + on + ", which take the CPU from " + where + ", and at the CPU limit of " + n.Service(why.Wait) + "."
	case "file", "sync":
		text = "Look at the disk of " + on + ", at what else uses it, and at how much " + where + " reads and writes."
	case "fault":
		text = "Look at the memory of " + on + ": pages of " + n.Service(why.Wait) + " are read from the disk or swapped in."
	case "dns":
		text = "Look at the name server that " + on + " uses: " + where + " waits for its answers."
	case "net":
		text = "Look at the peers of " + where + " and the network to them."
	case "futex":
		text = "Look at what holds the lock for which " + where + " waits; the waits in sample traces have stacks."
	case "sleep":
		text = "Look at retries, rate limits and timers in " + where + ": it pauses by itself."
	case "other":
		text = "Look at " + where + ": something stops it, such as a debugger or a signal, or it waits for a device; the waits in sample traces have stacks."
	default:
		text = "Look at " + where + ": it spends its time " + detect.Waiting(class) + "."
	}
	if why.Share > 0 {
		text += " That is " + units.Share(why.Share) + " of the added latency."
	}
	return text
}
