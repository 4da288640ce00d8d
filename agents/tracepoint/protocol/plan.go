package protocol

import (
	"encoding/json"
	"fmt"
)

// Plan says what is on. Version, filters, and the names and shares of the arms are the same for all agents; the tracepoints
// are those of one agent.
type Plan struct {
	Protocol     int      `json:"protocol"`
	Version      int64    `json:"version"`       // ascends; 0: of nobody's plan
	Hash         string   `json:"hash"`          // HashPlan
	LeaseSeconds int      `json:"lease_seconds"` // how long it applies after the last answer to GET plan
	Filters      []Filter `json:"filters,omitempty"`
	Arms         []Arm    `json:"arms"`
}

// Filter says which requests are meant, by the span with which they enter the first agent. Empty fields mean any.
type Filter struct {
	Service    string            `json:"service,omitempty"`
	Operation  string            `json:"operation,omitempty"` // name of the span
	SpanKind   SpanKind          `json:"span_kind,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"` // that the span has at its start, all of them; numbers and the like as text
}

// Arm is a random share of the requests, with a set of tracepoints of its own: everything that is on for these requests beside
// the baseline.
type Arm struct {
	Name  string  `json:"name"`  // lower-case letters and digits
	Share float64 `json:"share"` // of all requests, in [0, 1]; those of all arms add up to at most 1, the rest has the baseline only
	// Everything says that all tracepoints of the agent are on, whatever Tracepoints says: the arm explores.
	Everything  bool      `json:"everything,omitempty"`
	Tracepoints []Enabled `json:"tracepoints"` // ascending by ID
}

// ExploreArm is the name of the arm that has everything on.
const ExploreArm = "x"

// Enabled is a tracepoint that is on: one that makes spans, or a variable that is captured on the span around it.
type Enabled struct {
	ID     string  `json:"id"`
	Rate   float64 `json:"rate"`             // share of the arm's requests that have it on, in (0, 1]
	Filter int     `json:"filter,omitempty"` // number, from 1, of the one of Plan.Filters that requests must fit; 0: none
}

// DecodePlan reads a plan as JSON. It returns an error, and nil, unless the plan is valid and has the hash that it says.
func DecodePlan(data []byte) (*Plan, error) {
	var p Plan
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if h := HashPlan(&p); p.Hash != h {
		return nil, fmt.Errorf("plan: %w", invalid("hash", "%q, must be %q", p.Hash, h))
	}
	return &p, nil
}

// sumOfShares is what the shares of the arms may add up to: floating-point numbers that are to make 1 may make a little more.
const sumOfShares = 1 + 1e-9

// Validate returns an error, an [InvalidError] or one wrapping [ErrVersion], unless p is a plan that can be applied. It does
// not look at p.Hash.
func (p *Plan) Validate() error {
	if err := checkVersion(p.Protocol); err != nil {
		return err
	}
	if p.Version < 0 || p.Version > MaxPlanVersion {
		return invalid("version", "%d is not in [0, %d]", p.Version, int64(MaxPlanVersion))
	}
	if err := checkRange("lease_seconds", float64(p.LeaseSeconds), 1, MaxLease); err != nil {
		return err
	}
	if err := checkCount("filters", len(p.Filters), MaxFilters); err != nil {
		return err
	}
	for i := range p.Filters {
		if err := p.Filters[i].validate(fmt.Sprintf("filters[%d]", i)); err != nil {
			return err
		}
	}
	return p.validateArms()
}

func (p *Plan) validateArms() error {
	if err := checkCount("arms", len(p.Arms), MaxArms); err != nil {
		return err
	}
	sum, seen := 0.0, make(map[string]bool, len(p.Arms))
	for i := range p.Arms {
		a, field := &p.Arms[i], fmt.Sprintf("arms[%d]", i)
		if err := a.validate(field, len(p.Filters)); err != nil {
			return err
		}
		if seen[a.Name] {
			return invalid(field+".name", "%q occurs twice", a.Name)
		}
		seen[a.Name] = true
		sum += a.Share
	}
	if sum > sumOfShares {
		return invalid("arms", "the shares add up to %v", sum)
	}
	return nil
}

func (f *Filter) validate(field string) error {
	if err := checkText(field+".service", f.Service, MaxText); err != nil {
		return err
	}
	if err := checkText(field+".operation", f.Operation, MaxText); err != nil {
		return err
	}
	if !f.SpanKind.valid() {
		return invalid(field+".span_kind", "%q is not a kind of span", f.SpanKind)
	}
	if err := checkCount(field+".attributes", len(f.Attributes), MaxResource); err != nil {
		return err
	}
	for k, v := range f.Attributes {
		if err := checkName(field+".attributes", k); err != nil {
			return err
		}
		if err := checkText(field+".attributes."+k, v, MaxText); err != nil {
			return err
		}
	}
	return nil
}

func (a *Arm) validate(field string, filters int) error {
	if !validArm(a.Name) {
		return invalid(field+".name", "%q is not 1 to %d lower-case letters and digits", a.Name, MaxArmName)
	}
	if err := checkRange(field+".share", a.Share, 0, 1); err != nil {
		return err
	}
	if err := checkCount(field+".tracepoints", len(a.Tracepoints), MaxEnabled); err != nil {
		return err
	}
	for i := range a.Tracepoints {
		t, field := &a.Tracepoints[i], fmt.Sprintf("%s.tracepoints[%d]", field, i)
		if i > 0 && a.Tracepoints[i-1].ID >= t.ID {
			return invalid(field+".id", "%q does not follow %q: they must ascend", t.ID, a.Tracepoints[i-1].ID)
		}
		if err := checkName(field+".id", t.ID); err != nil {
			return err
		}
		if err := checkRange(field+".rate", t.Rate, 0, 1); err != nil || t.Rate == 0 {
			return invalid(field+".rate", "%v is not in (0, 1]", t.Rate)
		}
		if t.Filter < 0 || t.Filter > filters {
			return invalid(field+".filter", "%d, of %d filters", t.Filter, filters)
		}
	}
	return nil
}

func validArm(name string) bool {
	if name == "" || len(name) > MaxArmName {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
