package protocol

import "fmt"

// Stacks is the calling tree of slow requests of an operation, with the time that they spent in each frame, waiting or
// running. An agent may sample or measure these times. Sibyl first tries the tracepoints with the most time, and skips
// tracepoints that appear in no frame or with hardly any time. An agent must therefore recognize the frames of all
// tracepoints in its catalogue, except variables.
type Stacks struct {
	Operation string   `json:"operation"` // name of the baseline span
	SpanKind  SpanKind `json:"span_kind"`
	Requests  int      `json:"requests"` // number of slow requests, about a quarter of all requests
	Frames    []Frame  `json:"frames"`   // the first is the operation; each follows its caller
}

// Frame stands for the calls of a tracepoint in one calling context. Calls outside of tracepoints belong to the frame
// around them.
type Frame struct {
	ID     string `json:"id,omitempty"` // of the tracepoint; empty for the operation
	Caller int    `json:"caller"`       // index in Frames
	Nanos  int64  `json:"ns"`           // time in the frame itself, without the frames that it calls
}

// LimitStacks returns the longest prefix of list that fits into a status.
func LimitStacks(list []Stacks) []Stacks {
	frames := 0
	for i := range list {
		if frames += len(list[i].Frames); frames > MaxFrames || i == MaxStacks {
			return list[:i]
		}
	}
	return list
}

func validateStacks(list []Stacks) error {
	if len(LimitStacks(list)) < len(list) {
		return invalid("stacks", "more than %d operations or %d frames", MaxStacks, MaxFrames)
	}
	for i := range list {
		if err := list[i].validate(fmt.Sprintf("stacks[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stacks) validate(field string) error {
	if err := checkName(field+".operation", s.Operation); err != nil {
		return err
	}
	if !s.SpanKind.valid() {
		return invalid(field+".span_kind", "%q is not a span kind", s.SpanKind)
	}
	if s.Requests < 1 || s.Requests > MaxStackRequests {
		return invalid(field+".requests", "%d is not in [1, %d]", s.Requests, MaxStackRequests)
	}
	if err := checkCount(field+".frames", len(s.Frames), MaxStackFrames); err != nil {
		return err
	}
	for i := range s.Frames {
		f, field := &s.Frames[i], fmt.Sprintf("%s.frames[%d]", field, i)
		if err := checkText(field+".id", f.ID, MaxText); err != nil {
			return err
		}
		if f.Caller < 0 || f.Caller >= i && i > 0 {
			return invalid(field+".caller", "%d is not an earlier frame", f.Caller)
		}
		if f.Nanos < 0 || f.Nanos > MaxStackNanos {
			return invalid(field+".ns", "%d is not in [0, %d]", f.Nanos, int64(MaxStackNanos))
		}
	}
	return nil
}
