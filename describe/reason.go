package describe

import (
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Located describes a place, its share of the added latency (0 if unknown), and the reason for the latency: "orders
// audit.append carries 93 % of the added latency", or "93 % of the added latency is waiting for the disk (fsync) in
// orders audit.append, on host b". The place may itself be a wait.
func Located(n *Names, place trace.Op, share float64, why engine.Reason) (s Sentence) {
	if why.Wait == 0 && detect.WaitClass(n.Table, place) != "" {
		why = engine.Reason{Wait: place, Share: share}
	}
	if why.Wait == 0 {
		if share > 0 {
			s.Say("%s carries %s of the added latency", n.op(place), figure(units.Share(share)))
		} else {
			s.Say("the place is %s", n.op(place))
		}
		if why.Computes {
			s.Plain(": it computes, or waits inside its own process (the kernel sees no wait)")
		}
		return s
	}
	if why.Share > 0 {
		s.Say("%s of the added latency is ", figure(units.Share(why.Share)))
	} else {
		s.Plain("the time is lost ")
	}
	s.Strong(detect.Waiting(detect.WaitClass(n.Table, why.Wait)))
	s.Say(" in %s", waiter(n, place, &why))
	if why.Host != 0 {
		s.Say(", on host %s", n.text(why.Host))
	}
	return s
}

// waiter returns the name of the function that waits, or of the place if the function is unknown. If the place is
// itself the wait, it returns the name of its service.
func waiter(n *Names, place trace.Op, why *engine.Reason) Phrase {
	if why.Function != 0 {
		return n.op(why.Function)
	}
	if place != why.Wait {
		return n.op(place)
	}
	return n.service(n.Table.Operation(why.Wait).Service)
}

// waitRemedy returns the next step for a place that waits in the kernel. why.Wait must not be 0.
func waitRemedy(n *Names, place trace.Op, why *engine.Reason) (s Sentence) {
	where, of := waiter(n, place, why), Name(n.Service(why.Wait))
	on, host := Phrase{Text: "its host"}, n.text(why.Host)
	format := "%s"
	if host.Text != "" {
		on, format = host, "host %s"
	}
	switch class := detect.WaitClass(n.Table, why.Wait); class {
	case "preempted", "runqueue":
		s = Say("Look at the other programs on "+format+", which take the CPU from %s, and at the CPU limit of %s.",
			on, where, of)
	case "file", "sync":
		s = Say("Look at the disk of "+format+", at what else uses it, and at how much %s reads and writes.", on, where)
	case "fault":
		s = Say("Look at the memory of "+format+": pages of %s are read from the disk or swapped in.", on, of)
	case "dns":
		s = Say("Look at the name server that "+format+" uses: %s waits for its answers.", on, where)
	case "net":
		s = Say("Look at the peers of %s and the network to them.", where)
	case "futex":
		s = Say("Look at what holds the lock for which %s waits; the waits in sample traces have stacks.", where)
	case "sleep":
		s = Say("Look at retries, rate limits and timers in %s: it pauses by itself.", where)
	case "other":
		s = Say("Look at %s: something stops it, such as a debugger or a signal, or it waits for a device; "+
			"the waits in sample traces have stacks.", where)
	default:
		s = Say("Look at %s: it spends its time "+detect.Waiting(class)+".", where)
	}
	if why.Share > 0 {
		s.Say(" That is %s of the added latency.", number(units.Share(why.Share)))
	}
	return s
}
