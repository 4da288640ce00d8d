package control

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// body is a plan as agents with one catalogue are told it. It is immutable.
type body struct {
	of   *published
	plan *protocol.Plan
	hash string
	json []byte
}

// bodyOf returns the part of a plan that agents with the catalogue are told: its own tracepoints, and the arms of all.
func (c *catalogue) bodyOf(from *published) *body {
	c.making.Lock()
	defer c.making.Unlock()
	if c.body != nil && c.body.of == from {
		return c.body
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
		panic(fmt.Sprintf("control: a plan that is no plain value: %v", err))
	}
	made := &body{of: from, plan: &own, hash: own.Hash, json: data}
	if from.plan.Version >= c.body.version() { // a poll that was slow does not replace what is newer
		c.body = made
	}
	return made
}

func (b *body) version() int64 {
	if b == nil {
		return 0
	}
	return b.plan.Version
}

// distinct returns how many tracepoints are on in any arm.
func (b *body) distinct() int {
	ids := make(map[string]bool)
	for i := range b.plan.Arms {
		for _, t := range b.plan.Arms[i].Tracepoints {
			ids[t.ID] = true
		}
	}
	return len(ids)
}

// PlanAnswer answers the request of an agent for its plan.
type PlanAnswer struct {
	Hash      string
	JSON      []byte // a protocol.Plan
	Unchanged bool   // it has that plan

	from        *published      // closes next when there is another plan
	done, moved <-chan struct{} // closed when the catalogue is complete, or it is another
}

// Plan returns what an agent is told now, which renews its lease. Has is the hash of the plan that it has.
func (p *Plane) Plan(c Caller, has string) (PlanAnswer, error) {
	from := p.published.Load()
	p.mu.Lock()
	a, err := p.find(c)
	var list *catalogue
	if err == nil {
		if list = a.catalogue; list.stalled(a.seen) {
			err = ErrUnknown // so that it registers again, and is told which pages to send
		}
	}
	if err != nil {
		p.mu.Unlock()
		return PlanAnswer{}, err
	}
	var done <-chan struct{} // nil: it is complete
	if !list.complete() {
		done = list.done
	}
	moved := a.moved
	p.mu.Unlock()
	b := list.bodyOf(from)
	return PlanAnswer{b.hash, b.json, b.hash == has, from, done, moved}, nil
}

// Wait returns what an agent is told as soon as that is not what it has, at the latest when so much time passed or ctx is done. Of several
// callers for one agent all but the last are answered at once.
func (p *Plane) Wait(ctx context.Context, c Caller, has string, wait time.Duration) (PlanAnswer, error) {
	wait = min(wait, p.options.Lease/3)
	t, err := p.Plan(c, has)
	if err != nil || !t.Unchanged || wait <= 0 {
		return t, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait-time.Duration(float64(wait)*spread(c.ID)/10))
	defer cancel()
	left, err := p.poll(c, cancel)
	if err != nil {
		return PlanAnswer{}, err
	}
	defer left()
	from := t.from
	from.waiting.Add(1)
	defer from.leave(1)
	for t.Unchanged && err == nil && ctx.Err() == nil {
		select {
		case <-t.from.next:
		case <-t.done:
		case <-t.moved:
		case <-p.closing:
			return t, nil
		case <-ctx.Done():
		}
		t, err = p.Plan(c, has)
	}
	return t, err
}

// poll notes that an agent waits. The caller calls left when it does not any more.
func (p *Plane) poll(c Caller, cancel context.CancelFunc) (left func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.find(c)
	if err != nil {
		return nil, err
	}
	if a.yield != nil {
		a.yield()
	}
	a.polls++
	a.nth++
	a.yield = cancel
	n := a.nth
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.polls--; a.nth == n {
			a.yield = nil
		}
	}, nil
}
