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
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
)

// step is something that a service does for a request.
type step struct {
	do     func(c *call) error
	inside []*function // that it calls itself
}

// call is a request at work in one service.
type call struct {
	ctx     context.Context //nolint:containedctx // a call is its context with what it is about
	request *Request
	conn    *sql.Conn // of the database, while one is held
	reply   []byte    // what the caller gets
}

// function is a function of a service, with a tracepoint around it.
type function struct {
	name     string
	inside   []*function
	point    *tracepoint.Point
	callers  int // places that call it
	executed atomic.Bool
}

// fn returns a function that does steps in order.
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

// leaf returns a function that calls none.
func (s *service) leaf(name string, do func(c *call) error) step { return s.fn(name, step{do: do}) }

// register makes the tracepoints of all functions and says where they are called, as far as that is one place.
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

// register makes the tracepoint of f, which is called where hint says, and those of the functions that it calls.
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

// all does steps in order.
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

// together does steps at the same time.
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

// sometimes does steps for a part of the requests.
func sometimes(part float64, what string, steps ...step) step {
	body := all(steps)
	return step{inside: body.inside, do: func(c *call) error {
		if c.request.chance(what) >= part {
			return nil
		}
		return body.do(c)
	}}
}

// compute hashes a KiB so many times, about a microsecond each; more for requests that are more work.
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

// branch is a function that has an inefficient branch, taken for one value of an attribute when that is the fault.
func (s *service) branch(name string, rounds int) step {
	usual := compute(rounds)
	return s.leaf(name, func(c *call) error {
		if f := s.at(SlowPath, name); f != nil && f.matches(c.request) {
			burn(slowRounds)
		}
		return usual.do(c)
	})
}

// locked is a function that works under a lock that requests of several types take; too long when that is the fault.
func (s *service) locked(name string, rounds int) step {
	var lock sync.Mutex // guards nothing but the order of the work
	usual := compute(rounds)
	return s.leaf(name, func(c *call) error {
		lock.Lock()
		defer lock.Unlock()
		if s.at(Lock, name) != nil {
			burn(lockedRounds)
		}
		return usual.do(c)
	})
}

// builds is a function that makes a tree of small objects, and a lot of garbage when that is the fault.
func (s *service) builds(name string, objects int) step {
	var kept atomic.Pointer[object] // what makes collecting the garbage work
	return s.leaf(name, func(c *call) error {
		if s.at(GC, name) != nil {
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

// object is a small one that the garbage collector has to follow.
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

// appends is a function that adds a record to a file and syncs it; again and again, for as long as a slow disk takes, when that is the fault.
func (s *service) appends(name string) (step, error) {
	file, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return step{}, fmt.Errorf("open the log of %s: %w", name, err)
	}
	s.files = append(s.files, file)
	record := bytes.Repeat([]byte("0123456789abcdef"), 256)
	var lock sync.Mutex // guards file
	return s.leaf(name, func(*call) error {
		lock.Lock()
		defer lock.Unlock()
		began := time.Now()
		for {
			if err := rewrite(file, record); err != nil {
				return err
			}
			if s.at(Disk, name) == nil || time.Since(began) >= diskFor {
				return nil
			}
		}
	}), nil
}

// rewrite writes a record to the beginning of a file, which so does not grow, and waits for the disk.
func rewrite(file *os.File, record []byte) error {
	if _, err := file.WriteAt(record, 0); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(file.Name()), err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", filepath.Base(file.Name()), err)
	}
	return nil
}

// encodes is a function that makes the reply: products as JSON, packed; with far more text when that is the fault.
func (s *service) encodes(name string) step {
	text := description(normalText)
	return s.leaf(name, func(c *call) error {
		long := text
		if s.at(Payload, name) != nil && c.request.chance("pictures") < picturedPart {
			long = s.pictures()
		}
		data, err := json.Marshal(map[string]any{"items": c.request.Items, "text": long})
		if err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(data); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
		if err := w.Close(); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
		c.reply = packed.Bytes()
		return nil
	})
}

// description returns text of n bytes that can be packed, but not to nothing.
func description(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{"blue", "sturdy", "elegant", "for", "the", "garden", "with", "handle", "of", "oak", "and", "brass", "light"}
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()[:n]
}
