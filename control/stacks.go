package control

import (
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Rules for requesting stacks.
const (
	sampleSeconds = 15   // longer than the time between two statuses
	mostStacks    = 4096 // maximum number of operations with stacks that are not recorded yet
	mostAsked     = 20   // number of statuses after which an agent without any stacks is no longer asked for its first
	mostTime      = time.Duration(1 << 60)
)

// stackKey identifies an operation with stacks.
type stackKey struct {
	service, operation string
	kind               trace.Kind
}

// stackTimes sums the stacks of an operation.
type stackTimes struct {
	requests int
	time     time.Duration
	points   map[string]search.StackTime // by ID
}

// WantStacks asks the agents of the given services, and of no others, to sample the stacks of slow requests.
func (p *Plane) WantStacks(services []string) {
	wanted := make(map[string]bool, len(services))
	for _, service := range services {
		wanted[service] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sampling = wanted
}

// stackSeconds returns the number of seconds for which the agent with the given ID should sample stacks from now on, or
// 0 to stop. asked is false if the agent can't sample stacks. Even if the search wants no stacks, we ask each agent for
// a first sample, which tells the search that it can expect more. We give up after mostAsked statuses.
func (p *Plane) stackSeconds(id string) (seconds int, asked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.agents.byID[id]
	if a == nil || !slices.Contains(a.capabilities, protocol.CanStacks) {
		return 0, false
	}
	if p.sampling[a.resource["service.name"]] {
		return sampleSeconds, true
	}
	if !a.sampled && a.asked < mostAsked {
		a.asked++
		return sampleSeconds, true
	}
	return 0, true
}

// addStacks adds the stacks that a reported to p.stacks. Time in tracepoints that are not in the agent's catalogue is
// attributed to their callers. The caller holds p.mu.
func (p *Plane) addStacks(a *agent, list []protocol.Stacks, all []tracepoint) {
	for i := range list {
		s := &list[i]
		k := stackKey{a.resource["service.name"], s.Operation, spanKinds[s.SpanKind]}
		x := p.stacks[k]
		if x == nil {
			if len(p.stacks) >= mostStacks {
				return
			}
			x = &stackTimes{points: make(map[string]search.StackTime)}
			p.stacks[k] = x
		}
		a.sampled = true
		x.requests += s.Requests
		x.add(s.Frames, all)
	}
}

// add adds the times of frames. The sums stay below mostTime, so that they can't overflow.
func (x *stackTimes) add(frames []protocol.Frame, all []tracepoint) {
	total, own := make([]time.Duration, len(frames)), make([]time.Duration, len(frames))
	ids := make([]string, len(frames))
	for i := range slices.Backward(frames) {
		f := &frames[i]
		own[i] += time.Duration(f.Nanos)
		total[i] += time.Duration(f.Nanos)
		if i == 0 {
			break
		}
		total[f.Caller] += total[i]
		if t := find(all, f.ID); t != nil {
			ids[i] = t.ID
		} else {
			own[f.Caller] += own[i]
		}
	}
	for i, id := range ids {
		if i == 0 {
			x.time = min(x.time+total[0], mostTime)
		}
		if id == "" {
			continue
		}
		t := x.points[id]
		t.ID, t.Own = id, min(t.Own+own[i], mostTime)
		if !recurs(frames, ids, i) {
			t.Total = min(t.Total+total[i], mostTime)
		}
		x.points[id] = t
	}
}

// recurs reports whether any direct or indirect caller of frame i is a call of the same tracepoint.
func recurs(frames []protocol.Frame, ids []string, i int) bool {
	for k := frames[i].Caller; k > 0; k = frames[k].Caller {
		if ids[k] == ids[i] {
			return true
		}
	}
	return false
}

// takeStacks returns the sums of the stacks by operation, in any order.
func takeStacks(sums map[stackKey]*stackTimes) []search.Stacks {
	var list []search.Stacks
	for k, x := range sums {
		s := search.Stacks{
			Service:   k.service,
			Operation: k.operation,
			Kind:      k.kind,
			Requests:  x.requests,
			Time:      x.time,
		}
		for _, id := range slices.Sorted(maps.Keys(x.points)) {
			s.Tracepoints = append(s.Tracepoints, x.points[id])
		}
		list = append(list, s)
	}
	return list
}
