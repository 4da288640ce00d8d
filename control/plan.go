package control

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// encodedPlan is the part of a plan for agents with one catalogue. It is immutable.
type encodedPlan struct {
	of   *published
	plan *protocol.Plan
	hash string
	json []byte
}

// planOf returns the part of `from` for agents with the catalogue c: all arms, each with those of its tracepoints that
// are in c and not in the baseline, but at most [protocol.MaxEnabled] of them.
func (c *catalogue) planOf(from *published) *encodedPlan {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plan != nil && c.plan.of == from {
		return c.plan
	}
	own := *from.plan
	own.Arms = make([]protocol.Arm, len(own.Arms))
	for i := range from.plan.Arms {
		own.Arms[i] = from.plan.Arms[i]
		own.Arms[i].Tracepoints = []protocol.Enabled{}
		for _, t := range from.plan.Arms[i].Tracepoints {
			if x := find(c.all, t.ID); x != nil && !x.Baseline && len(own.Arms[i].Tracepoints) < protocol.MaxEnabled {
				own.Arms[i].Tracepoints = append(own.Arms[i].Tracepoints, t)
			}
		}
	}
	own.Hash = protocol.HashPlan(&own)
	data, err := json.Marshal(&own)
	if err != nil {
		panic(fmt.Sprintf("control: encode a plan: %v", err))
	}
	encoded := &encodedPlan{of: from, plan: &own, hash: own.Hash, json: data}
	if from.plan.Version >= c.plan.version() { // a slow poll doesn't replace a newer plan
		c.plan = encoded
	}
	return encoded
}

// version returns the version of the plan, or 0 if e is nil.
func (e *encodedPlan) version() int64 {
	if e == nil {
		return 0
	}
	return e.plan.Version
}

// distinct returns the number of distinct tracepoints in all arms.
func (e *encodedPlan) distinct() int {
	ids := make(map[string]bool)
	for i := range e.plan.Arms {
		for _, t := range e.plan.Arms[i].Tracepoints {
			ids[t.ID] = true
		}
	}
	return len(ids)
}

// PlanAnswer is the answer to an agent that asks for its plan.
type PlanAnswer struct {
	Hash      string
	JSON      []byte // a [protocol.Plan]
	Unchanged bool   // the agent already has this plan

	from             *published
	complete         <-chan struct{} // closed when the catalogue is complete; nil if it already is
	catalogueChanged <-chan struct{} // closed when the agent gets another catalogue
}

// Plan returns the current plan for the agent identified by c and renews its lease. has is the hash of the plan that
// the agent already has, or empty. The error is ErrUnknown, ErrConflict, ErrServices or ErrStarting.
func (p *Plane) Plan(c Caller, has string) (PlanAnswer, error) {
	from := p.published.Load()
	p.mu.Lock()
	a, err := p.lookup(c)
	var list *catalogue
	if err == nil {
		if list = a.catalogue; list.stalled(a.seen) {
			err = ErrUnknown // the agent registers again, and the answer lists the pages to send
		}
	}
	if err != nil {
		p.mu.Unlock()
		return PlanAnswer{}, err
	}
	var complete <-chan struct{}
	if !list.complete() {
		complete = list.done
	}
	changed := a.catalogueChanged
	p.mu.Unlock()
	e := list.planOf(from)
	if complete != nil { // it was incomplete until just now
		p.mu.Lock()
		owned := c.ownsAll(list)
		p.mu.Unlock()
		if !owned {
			return PlanAnswer{}, ErrServices
		}
	}
	return PlanAnswer{e.hash, e.json, e.hash == has, from, complete, changed}, nil
}

// Wait is like Plan, but waits until the plan's hash differs from `has`. If the plan doesn't change, Wait returns it
// when ctx is done or when `wait`, but at most a third of a lease, has passed. A later call for the same agent ends
// earlier calls.
func (p *Plane) Wait(ctx context.Context, c Caller, has string, wait time.Duration) (PlanAnswer, error) {
	wait = min(wait, p.options.Lease/3)
	answer, err := p.Plan(c, has)
	if err != nil || !answer.Unchanged || wait <= 0 {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait-time.Duration(float64(wait)*jitter(c.ID)/10))
	defer cancel()
	ended, err := p.beginPoll(c, cancel)
	if err != nil {
		return PlanAnswer{}, err
	}
	defer ended()
	from := answer.from
	from.waiting.Add(1)
	defer from.removeWaiting(1)
	for answer.Unchanged && err == nil && ctx.Err() == nil {
		select {
		case <-answer.from.next:
		case <-answer.complete:
		case <-answer.catalogueChanged:
		case <-p.closing:
			return answer, nil
		case <-ctx.Done():
		}
		answer, err = p.Plan(c, has)
	}
	return answer, err
}

// beginPoll records that the agent identified by c is waiting, and ends the agent's earlier poll. cancel must end the
// new poll. The caller must call ended after the poll.
func (p *Plane) beginPoll(c Caller, cancel context.CancelFunc) (ended func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.lookup(c)
	if err != nil {
		return nil, err
	}
	if a.cancelPoll != nil {
		a.cancelPoll()
	}
	a.polls++
	a.pollNumber++
	a.cancelPoll = cancel
	number := a.pollNumber
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.polls--; a.pollNumber == number {
			a.cancelPoll = nil
		}
	}, nil
}
