package throughput

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// moves remembers by how much recent groups of requests were moved in time. The requests of a group share traces.
type moves struct {
	mu     sync.Mutex
	recent [movesKept]move
}

type move struct {
	known bool
	group int
	by    uint64 // ns
}

// movesKept exceeds the number of groups that are sent at the same time.
const movesKept = 1024

// of returns the time by which group must move to start now or, if it has moved already, the time by which it moved.
// first contains one of its times.
func (m *moves) of(group int, first []byte) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := &m.recent[group%movesKept]
	if !x.known || x.group != group {
		*x = move{true, group, uint64(time.Now().UnixNano()) - binary.LittleEndian.Uint64(first)}
	}
	return x.by
}

// Field numbers of OTLP on the way to the times of spans.
const (
	resourceSpans = 1
	scopeSpans    = 2 // of resourceSpans
	spanField     = 2 // of scopeSpans
	startField    = 7 // of a span
	endField      = 8
)

// timesIn returns the offsets of the times of all spans in an encoded request.
func timesIn(data []byte) (at []int, err error) {
	path := [...]protowire.Number{resourceSpans, scopeSpans, spanField}
	var walk func(from, to, depth int) error
	walk = func(from, to, depth int) error {
		for from < to {
			number, kind, n := protowire.ConsumeTag(data[from:to])
			if n < 0 {
				return fmt.Errorf("a request of the load: %w", protowire.ParseError(n))
			}
			from += n
			size := protowire.ConsumeFieldValue(number, kind, data[from:to])
			if size < 0 {
				return fmt.Errorf("a request of the load: %w", protowire.ParseError(size))
			}
			switch {
			case depth < len(path) && number == path[depth] && kind == protowire.BytesType:
				body, _ := protowire.ConsumeBytes(data[from:to]) // its size is known to be right
				if err := walk(from+size-len(body), from+size, depth+1); err != nil {
					return err
				}
			case depth == len(path) && (number == startField || number == endField):
				at = append(at, from)
			}
			from += size
		}
		return nil
	}
	err = walk(0, len(data), 0)
	return at, err
}
