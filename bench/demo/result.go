package demo

import (
	"fmt"
	"strings"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
)

// Result is what came out.
type Result struct {
	Fault            shop.Fault `json:"fault"`
	Located          bool       `json:"located"`
	Edge             *shop.Edge `json:"edge"`     // null: not located
	Expected         *shop.Edge `json:"expected"` // null: there is no fault
	Correct          bool       `json:"correct"`
	Seconds          float64    `json:"seconds"` // from the fault to the answer, or to the end
	Epochs           int        `json:"epochs"`
	Tracepoints      int        `json:"tracepoints"` // that requests executed
	EnabledEver      int        `json:"enabled_ever"`
	EnabledPeak      int        `json:"enabled_peak"`
	ExtraSpans       float64    `json:"extra_spans_fraction"` // of all spans since the fault
	RemainingEnabled int        `json:"remaining_enabled_after"`
	Problems         int        `json:"problems"` // that were raised
	Requests         uint64     `json:"requests"`
	Failed           uint64     `json:"failed_requests"`
	Seed             uint64     `json:"seed"`

	largest *contract.Plan // with the most tracepoints; nil: there was none
}

// String says it for people, in lines.
func (r *Result) String() string {
	var b strings.Builder
	switch {
	case r.Fault == shop.None && r.Correct:
		b.WriteString("\nNothing was wrong, and no problem was raised.\n")
	case r.Fault == shop.None:
		fmt.Fprintf(&b, "\nNothing was wrong, and %d problems were raised.\n", r.Problems)
	case !r.Located:
		fmt.Fprintf(&b, "\nThe fault was not located in %.0f s. It is %s, and shows in %s.\n", r.Seconds, r.Fault, r.Expected)
	case r.Correct:
		fmt.Fprintf(&b, "\nThe answer: %s. It is right: the fault is %s. It took %.0f s and %d epochs.\n", r.Edge, r.Fault, r.Seconds, r.Epochs)
	default:
		fmt.Fprintf(&b, "\nThe answer: %s. It is wrong: the fault is %s, and shows in %s. It took %.0f s and %d epochs.\n", r.Edge, r.Fault, r.Expected, r.Seconds, r.Epochs)
	}
	fmt.Fprintf(&b, "Of %d tracepoints %d were on at some time, at most %d together; %.1f %% of the spans were extra. %d are on now.\n",
		r.Tracepoints, r.EnabledEver, r.EnabledPeak, 100*r.ExtraSpans, r.RemainingEnabled)
	return b.String()
}
