package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Result is the result of a demo.
type Result struct {
	Fault            shop.Fault `json:"fault"`
	Located          bool       `json:"located"`  // for the incident of the fault
	Edge             *shop.Edge `json:"edge"`     // null if not located
	Expected         *shop.Edge `json:"expected"` // null without a fault
	Correct          bool       `json:"correct"`
	Wait             *Wait      `json:"wait"`                     // null if no waits in the kernel explain an incident
	ExpectedWaits    []string   `json:"expected_waits,omitempty"` // classes of the fault's waits, with the kernel agent
	Seconds          float64    `json:"seconds"`                  // from the fault to the answer, or to the end
	Epochs           int        `json:"epochs"`
	Tracepoints      int        `json:"tracepoints"` // executed by requests, plus all that agents offer
	EnabledEver      int        `json:"enabled_ever"`
	EnabledPeak      int        `json:"enabled_peak"`
	ExtraSpans       float64    `json:"extra_spans_fraction"`    // of all spans since the fault
	RemainingEnabled int        `json:"remaining_enabled_after"` // for incidents
	Incidents        []Incident `json:"incidents"`
	Requests         uint64     `json:"requests"`
	Failed           uint64     `json:"failed_requests"`
	Seed             uint64     `json:"seed"`

	largest *contract.Plan // with the most tracepoints; nil if all plans were empty
}

// Wait is the reason for an incident, as found by the kernel agent.
type Wait struct {
	Class    string  `json:"class"`
	Text     string  `json:"text"`
	Share    float64 `json:"share"` // of the added latency
	Service  string  `json:"service"`
	Function string  `json:"function"` // "" if unknown
	Host     string  `json:"host"`     // "" if unknown
	Seconds  float64 `json:"seconds"`  // from the fault until it was known
	Sentence string  `json:"sentence"` // of the incident
	Correct  bool    `json:"correct"`  // class and service
}

// String describes x: "82 % of the added latency is waiting for the disk (fsync) in orders audit.append, on host b".
func (x *Wait) String() string {
	text := units.Share(x.Share) + " of the added latency is " + x.Text + " in " + cmp.Or(x.Function, x.Service)
	if x.Host != "" {
		text += ", on host " + x.Host
	}
	return text
}

// Incident is an incident of a demo.
type Incident struct {
	Seconds  float64    `json:"seconds"` // from the fault to its opening; 0 if it opened before the fault
	Service  string     `json:"service"` // the first suspect when it opened
	Sentence string     `json:"sentence"`
	URL      string     `json:"url"`
	Edge     *shop.Edge `json:"edge"`     // its place; null if not located
	OfFault  bool       `json:"of_fault"` // its first suspect, or its place, is in the service of the fault

	id string
}

// String formats the result in sentences, one a line.
func (r *Result) String() string {
	var b strings.Builder
	switch {
	case r.Fault == shop.None && r.Correct:
		b.WriteString("\nThere was no fault, and no incident opened.\n")
	case r.Fault == shop.None:
		fmt.Fprintf(&b, "\nThere was no fault, but %s opened.\n", units.Plural(len(r.Incidents), "incident"))
	case !r.Located:
		fmt.Fprintf(&b, "\nThe fault was not located in %.0f s. It is %s in %s.\n", r.Seconds, r.Fault, r.Expected)
	case r.Correct:
		fmt.Fprintf(&b, "\nAnswer: %s. This is correct: the fault is %s. It took %.0f s and %s.\n",
			r.Edge, r.Fault, r.Seconds, units.Plural(r.Epochs, "epoch"))
	default:
		fmt.Fprintf(&b, "\nAnswer: %s. This is wrong: the fault is %s in %s. It took %.0f s and %s.\n",
			r.Edge, r.Fault, r.Expected, r.Seconds, units.Plural(r.Epochs, "epoch"))
	}
	switch {
	case r.Wait != nil && r.Wait.Correct:
		fmt.Fprintf(&b, "The kernel agent explained it after %.0f s: %s.\n", r.Wait.Seconds, r.Wait)
	case r.Wait != nil:
		fmt.Fprintf(&b, "The kernel agent explained it after %.0f s, wrongly: %s.\n", r.Wait.Seconds, r.Wait)
	case len(r.ExpectedWaits) > 0:
		var causes []string
		for _, class := range r.ExpectedWaits {
			if text := detect.Waiting(class); !slices.Contains(causes, text) {
				causes = append(causes, text)
			}
		}
		fmt.Fprintf(&b, "The kernel agent did not explain it: the cause is %s.\n", strings.Join(causes, " or "))
	}
	for i := range r.Incidents {
		b.WriteString(r.Incidents[i].text(r.Fault != shop.None, i == 0))
	}
	fmt.Fprintf(&b, "Of %s, %d were enabled at some time, at most %d at once; %.1f %% of the spans were extra. "+
		"%s enabled for incidents now.\n",
		units.Plural(r.Tracepoints, "tracepoint"), r.EnabledEver, r.EnabledPeak, 100*r.ExtraSpans,
		verb(r.RemainingEnabled, "tracepoint", "is", "are"))
	return b.String()
}

// text describes the incident of a demo, with or without a fault. It omits the sentence of the first incident with a
// fault, because the story has already printed it.
func (x *Incident) text(fault, first bool) string {
	kind := "Incident"
	if fault && !x.OfFault {
		kind = "Another incident"
	}
	text := fmt.Sprintf("%s after %.0f s: %s\n", kind, x.Seconds, x.URL)
	if !fault || !first {
		text += "  " + x.Sentence + "\n"
	}
	if !x.OfFault && x.Edge != nil {
		text += fmt.Sprintf("  Sibyl located %s.\n", x.Edge)
	}
	return text
}

// verb returns n with a noun and a verb in the same number.
func verb(n int, noun, singular, plural string) string {
	if n == 1 {
		return units.Plural(n, noun) + " " + singular
	}
	return units.Plural(n, noun) + " " + plural
}
