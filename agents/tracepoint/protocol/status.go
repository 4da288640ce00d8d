package protocol

import "fmt"

// State is what became of a tracepoint that a plan switched on.
type State string

// The states.
const (
	Applied     State = "applied"
	Failed      State = "failed"      // Reason says why
	Unsupported State = "unsupported" // the agent does not know the id, or not how to do what is asked
)

// Status is the body of POST status: what became of the plan, and what it costs. It is sent when a plan was applied, when a
// lease ended, and every few seconds while something is on.
type Status struct {
	Protocol int    `json:"protocol"`
	Session  string `json:"session"`
	Version  int64  `json:"version"`         // of the plan that applies; 0: none, the agent is at its baseline
	Hash     string `json:"hash"`            // of that plan; "": none
	Error    string `json:"error,omitempty"` // why the last plan that the agent got does not apply
	// Tracepoints are those of the plan, and others that were hit since the status before.
	Tracepoints []Outcome `json:"tracepoints,omitempty"`
}

// Outcome is what became of one tracepoint. Counts are since the session began, so that a status that is lost or comes twice
// does no harm.
type Outcome struct {
	ID     string  `json:"id"`
	State  State   `json:"state"`
	Reason string  `json:"reason,omitempty"`
	Hits   uint64  `json:"hits"`    // times it was executed while on
	Drops  uint64  `json:"drops"`   // of these, that made no data: the request is not sampled, or a limit is reached
	Nanos  float64 `json:"cost_ns"` // measured CPU time a hit, the mean since the session began; 0: not measured
	Bytes  float64 `json:"bytes"`   // measured trace data a hit, the mean since the session began; 0: not measured
}

// Validate returns an error, an [InvalidError] or one wrapping [ErrVersion], unless s can be worked with.
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
	return nil
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
