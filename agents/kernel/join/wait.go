package join

import (
	"encoding/hex"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// Quality is the certainty that a wait belongs to a span.
type Quality string

// Exact is the quality of a wait whose span was recorded by the process at the start of the wait. The agent sends only
// such waits. A receiver that knows the open spans of each thread may join further waits by thread and time.
const Exact Quality = "exact"

// Wait is a wait that belongs to a span.
type Wait struct {
	waits.Event
	Part    waits.Part // part of the event that w stands for; see [Wait.Parts]
	Trace   [16]byte
	Parent  [8]byte // the span that waited
	Quality Quality
	Service *Service
	Frames  []string // functions that waited, innermost first; empty without a stack
}

// Parts returns one copy of w for each part of its event; see [waits.Event.Parts].
func (w *Wait) Parts(wanted waits.Set, t waits.Thresholds) []Wait {
	var all []Wait
	for _, p := range w.Event.Parts(wanted, t) {
		x := *w
		x.Part = p
		all = append(all, x)
	}
	return all
}

// spanOf returns the span of an event. If ok is false, missing is the reason.
func spanOf(e *waits.Event) (trace [16]byte, span [8]byte, missing waits.Reason, ok bool) {
	switch e.Found {
	case waits.Hex:
		_, err1 := hex.Decode(trace[:], e.Trace[:])
		_, err2 := hex.Decode(span[:], e.Span[:])
		if err1 != nil || err2 != nil {
			return [16]byte{}, [8]byte{}, waits.MissingInvalid, false
		}
	case waits.Binary:
		copy(trace[:], e.Trace[:])
		copy(span[:], e.Span[:])
	case waits.NoGoroutine:
		return trace, span, waits.MissingNoGoroutine, false
	case waits.NoSpan:
		return trace, span, waits.MissingNoSpan, false
	case waits.Unreadable:
		return trace, span, waits.MissingUnreadable, false
	case waits.Unsampled:
		return trace, span, waits.MissingUnsampled, false
	case waits.NotSought:
		return trace, span, waits.MissingNotSought, false
	default:
		return trace, span, waits.MissingInvalid, false
	}
	if trace == [16]byte{} || span == [8]byte{} {
		return [16]byte{}, [8]byte{}, waits.MissingNoSpan, false
	}
	return trace, span, 0, true
}
