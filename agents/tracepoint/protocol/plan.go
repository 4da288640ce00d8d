package protocol

import (
	"encoding/json"
	"fmt"
)

// Plan lists the enabled tracepoints of one agent. Version, filters, and the names and shares of the arms are the same
// for all agents.
type Plan struct {
	Protocol     int      `json:"protocol"`
	Version      int64    `json:"version"`       // ascending; 0 if no plan was published
	Hash         string   `json:"hash"`          // HashPlan
	LeaseSeconds int      `json:"lease_seconds"` // validity of the plan after the last response to GET plan
	Filters      []Filter `json:"filters,omitempty"`
	Arms         []Arm    `json:"arms"`
}

// Filter selects requests by their entry span in the first agent. Empty fields match everything.
type Filter struct {
	Service   string   `json:"service,omitempty"`
	Operation string   `json:"operation,omitempty"` // name of the span
	SpanKind  SpanKind `json:"span_kind,omitempty"`
	// Attributes must be present, with these values, at the start of the span. Values other than strings are compared
	// as text.
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Arm is a random share of the requests, with the tracepoints that are enabled for them in addition to the baseline.
type Arm struct {
	Name string `json:"name"` // lower-case letters and digits
	// Share is the share of all requests, in [0, 1]. The shares of all arms add up to at most 1. For the remaining
	// requests, only the baseline is enabled.
	Share       float64   `json:"share"`
	Tracepoints []Enabled `json:"tracepoints"` // ascending by ID
}

// Enabled is an enabled tracepoint of an arm.
type Enabled struct {
	ID     string  `json:"id"`
	Rate   float64 `json:"rate"`             // share of the arm's requests that it is enabled for, in (0, 1]
	Filter int     `json:"filter,omitempty"` // filter in Plan.Filters that requests must match, from 1; may be 0
}

// Matches reports whether f selects a request whose entry span, in the given service, has the name operation and the
// given kind. The function attribute returns the formatted value of an attribute that the span has at its start, and
// whether the attribute exists.
func (f *Filter) Matches(service, operation string, kind SpanKind, attribute func(key string) (string, bool)) bool {
	if f.Service != "" && f.Service != service || f.Operation != "" && f.Operation != operation ||
		f.SpanKind != "" && f.SpanKind != kind {
		return false
	}
	for k, want := range f.Attributes {
		if got, ok := attribute(k); !ok || got != want {
			return false
		}
	}
	return true
}

// FilterBit returns the bit of Decision.Filters that must be set, or 0 if t has no filter.
func (t *Enabled) FilterBit() uint64 {
	if t.Filter == 0 {
		return 0
	}
	return 1 << (t.Filter - 1)
}

// DecodePlan decodes a plan from JSON. It returns nil and an error if the plan is not valid or its hash does not match.
func DecodePlan(data []byte) (*Plan, error) {
	var p Plan
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if h := HashPlan(&p); p.Hash != h {
		return nil, fmt.Errorf("plan: %w", invalid("hash", "got %q, want %q", p.Hash, h))
	}
	return &p, nil
}

// maxShareSum is the maximum sum of the arms' shares. It exceeds 1 by a tolerance for rounding.
const maxShareSum = 1 + 1e-9

// Validate returns an [InvalidError], or an error wrapping [ErrVersion], if p is not valid. It does not check p.Hash.
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
	if sum > maxShareSum {
		return invalid("arms", "the shares sum to %v", sum)
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
		return invalid(field+".span_kind", "%q is not a span kind", f.SpanKind)
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
			return invalid(field+".id", "%q after %q: not in ascending order", t.ID, a.Tracepoints[i-1].ID)
		}
		if err := checkName(field+".id", t.ID); err != nil {
			return err
		}
		if err := checkRange(field+".rate", t.Rate, 0, 1); err != nil || t.Rate == 0 {
			return invalid(field+".rate", "%v is not in (0, 1]", t.Rate)
		}
		if t.Filter < 0 || t.Filter > filters {
			return invalid(field+".filter", "%d: the plan has %d filters", t.Filter, filters)
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
