package shop

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
)

// step is a part of a service's work for a request.
type step struct {
	do     func(c *call) error
	inside []*function // called by it directly
}

// call is the processing of a request by a service.
type call struct {
	ctx     context.Context //nolint:containedctx // scoped to the call; steps replace it
	request *Request
	conn    *sql.Conn // held connection to the database; may be nil
	reply   []byte
}

// function is a function of a service, with a tracepoint around it.
type function struct {
	name     string
	inside   []*function
	point    *tracepoint.Point
	callers  int // number of call sites
	executed atomic.Bool
}

// fn returns a function that executes steps in order.
func (s *service) fn(name string, steps ...step) step {
	body := all(steps)
	f := &function{name: name, inside: body.inside}
	s.functions = append(s.functions, f)
	return step{inside: []*function{f}, do: func(c *call) error {
		f.executed.Store(true)
		outer := c.ctx
		ctx, end := f.point.Start(outer)
		defer end()
		c.ctx = ctx
		defer func() { c.ctx = outer }()
		return body.do(c)
	}}
}

// leaf returns a function that calls no other functions.
func (s *service) leaf(name string, do func(c *call) error) step { return s.fn(name, step{do: do}) }

// register registers the tracepoints of all functions. A function with only one caller gets it as a hint.
func (s *service) register() {
	for _, f := range s.functions {
		for _, inner := range f.inside {
			inner.callers++
		}
	}
	for name, endpoint := range s.endpoints {
		owner := name
		if speaksGRPC[s.name] {
			owner = grpcName(s.name) + "/" + name
		}
		for _, f := range endpoint.inside {
			f.callers++
			f.register(tracepoint.WithOwner(owner, trace.SpanKindServer))
		}
	}
}

// register registers the tracepoints of f, with hint as its caller, and of the functions that it calls.
func (f *function) register(hint tracepoint.PointOption) {
	if f.point != nil {
		return
	}
	if f.callers > 1 {
		f.point = tracepoint.Span(f.name)
	} else {
		f.point = tracepoint.Span(f.name, hint)
	}
	for _, inner := range f.inside {
		inner.register(tracepoint.WithParent(f.point))
	}
}

// all returns a step that executes steps in order.
func all(steps []step) step {
	return step{inside: insideOf(steps), do: func(c *call) error {
		for _, s := range steps {
			if err := s.do(c); err != nil {
				return err
			}
		}
		return nil
	}}
}

func insideOf(steps []step) []*function {
	var inside []*function
	for _, s := range steps {
		inside = append(inside, s.inside...)
	}
	return inside
}

// together returns a step that executes steps concurrently.
func together(steps ...step) step {
	return step{inside: insideOf(steps), do: func(c *call) error {
		errs := make([]error, len(steps))
		var running sync.WaitGroup
		for i, s := range steps {
			running.Go(func() {
				own := *c
				errs[i] = s.do(&own)
			})
		}
		running.Wait()
		return errors.Join(errs...)
	}}
}

// sometimes returns a step that executes steps for a fraction of the requests. name identifies the random choice.
func sometimes(fraction float64, name string, steps ...step) step {
	body := all(steps)
	return step{inside: body.inside, do: func(c *call) error {
		if c.request.chance(name) >= fraction {
			return nil
		}
		return body.do(c)
	}}
}

// compute returns a step that hashes a KiB the given number of times, multiplied by the request's effort. A round takes
// about a microsecond.
func compute(rounds int) step {
	return step{do: func(c *call) error {
		burn(int(float64(rounds) * c.request.Effort))
		return nil
	}}
}

func burn(rounds int) {
	var block [1024]byte
	for range rounds {
		sum := sha256.Sum256(block[:])
		copy(block[:], sum[:])
	}
}

// branch returns a function with an inefficient branch. Requests with one value of an attribute take it if there is the
// fault [SlowPath].
func (s *service) branch(name string, rounds int) step {
	usual := compute(rounds)
	return s.leaf(name, func(c *call) error {
		if f := s.faultAt(SlowPath, name); f != nil && f.matches(c.request) {
			burn(slowRounds)
		}
		return usual.do(c)
	})
}

// builds returns a function that builds a tree of small objects. The fault [GC] makes it also keep a large tree and
// discard many.
func (s *service) builds(name string, objects int) step {
	var kept atomic.Pointer[object] // makes each garbage collection expensive
	return s.leaf(name, func(c *call) error {
		if s.faultAt(GC, name) != nil {
			if kept.Load() == nil {
				kept.Store(grow(liveObjects))
			}
			for range garbageTrees {
				grow(garbageObjects)
			}
		}
		grow(objects)
		return nil
	})
}

// object is a small object with pointers for the garbage collector to follow.
type object struct {
	left, right *object
	name        []byte
}

// grow returns a tree of n objects.
func grow(n int) *object {
	if n == 0 {
		return nil
	}
	return &object{left: grow((n - 1) / 2), right: grow(n - 1 - (n-1)/2), name: make([]byte, 24)}
}

// encodes returns a function that sets the reply: products as compressed JSON. The fault [Payload] adds far more text
// to some replies.
func (s *service) encodes(name string) step {
	text := description(normalText)
	return s.leaf(name, func(c *call) error {
		long := text
		if s.faultAt(Payload, name) != nil && c.request.chance("pictures") < pictureFraction {
			long = s.pictures()
		}
		data, err := json.Marshal(map[string]any{"items": c.request.Items, "text": long})
		if err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
		var compressed bytes.Buffer
		w := gzip.NewWriter(&compressed)
		if _, err := w.Write(data); err != nil {
			return fmt.Errorf("compress %s: %w", name, err)
		}
		if err := w.Close(); err != nil {
			return fmt.Errorf("compress %s: %w", name, err)
		}
		c.reply = compressed.Bytes()
		return nil
	})
}

// description returns a text of n bytes that compresses like prose.
func description(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("blue sturdy elegant for the garden with handle of oak and brass light")
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()[:n]
}
