package protocol

import "fmt"

// State is the state of a tracepoint that a plan enables.
type State string

// The states.
const (
	Applied     State = "applied"
	Failed      State = "failed"      // see Outcome.Reason
	Unsupported State = "unsupported" // the agent does not know the ID or lacks a capability
)

// Status is the body of POST status. It reports the states and the costs of tracepoints. An agent sends it after it has
// applied a plan, after a lease has expired, and every few seconds.
type Status struct {
	Protocol int    `json:"protocol"`
	Session  string `json:"session"`
	Version  int64  `json:"version"`         // of the current plan; 0 if the agent runs its baseline
	Hash     string `json:"hash"`            // of the current plan; may be empty
	Error    string `json:"error,omitempty"` // reason why the agent rejected the last plan that it received
	// Tracepoints holds the tracepoints of the plan, and others that were hit in the session.
	Tracepoints []Outcome `json:"tracepoints,omitempty"`
	// Stacks holds the stacks of slow requests since the last status, at most MaxStacks, if Sibyl has asked for them.
	Stacks []Stacks `json:"stacks,omitempty"`
}

// StatusAnswer is the response to a status of an agent with the capability CanStacks.
type StatusAnswer struct {
	StackSeconds int `json:"stack_seconds"` // how long the agent should sample stacks from now on; 0: stop
}

// Outcome is the state of one tracepoint and its cost. Counts are cumulative since the start of the session, so lost
// and duplicate statuses do no harm.
type Outcome struct {
	ID     string  `json:"id"`
	State  State   `json:"state"`
	Reason string  `json:"reason,omitempty"`
	Hits   uint64  `json:"hits"`    // executions while enabled
	Drops  uint64  `json:"drops"`   // hits that recorded nothing: the request is not sampled, or a limit is exceeded
	Nanos  float64 `json:"cost_ns"` // mean measured CPU time per hit in the session; 0 if not measured
	Bytes  float64 `json:"bytes"`   // mean measured trace data per hit in the session; 0 if not measured
	// Incomplete means that much of the tracepoint's recent data is missing, for the reason in Reason, so that the
	// absence of data proves nothing. The tracepoint may soon work again.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Validate returns an [InvalidError], or an error wrapping [ErrVersion], if s is not valid.
func (s *Status) Validate() error {
	if err := checkVersion(s.Protocol); err != nil {
		return err
	}
	if err := checkName("session", s.Session); err != nil {
		return err
	}
	if s.Version < 0 || s.Version > MaxPlanVersion {
		return invalid("version", "%d is not in [0, %d]", s.Version, int64(MaxPlanVersion))
	}
	if s.Hash != "" {
		if err := checkHash("hash", s.Hash); err != nil {
			return err
		}
	}
	if err := checkText("error", s.Error, MaxReason); err != nil {
		return err
	}
	if err := checkCount("tracepoints", len(s.Tracepoints), MaxOutcomes); err != nil {
		return err
	}
	for i := range s.Tracepoints {
		if err := s.Tracepoints[i].validate(fmt.Sprintf("tracepoints[%d]", i)); err != nil {
			return err
		}
	}
	return validateStacks(s.Stacks)
}

func (o *Outcome) validate(field string) error {
	if err := checkName(field+".id", o.ID); err != nil {
		return err
	}
	switch o.State {
	case Applied, Failed, Unsupported:
	default:
		return invalid(field+".state", "%q is not applied, failed or unsupported", o.State)
	}
	if err := checkText(field+".reason", o.Reason, MaxReason); err != nil {
		return err
	}
	if err := checkRange(field+".cost_ns", o.Nanos, 0, MaxCPU); err != nil {
		return err
	}
	return checkRange(field+".bytes", o.Bytes, 0, MaxHitBytes)
}
