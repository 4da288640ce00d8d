package trace

import "slices"

// FailureRule is a convention that marks a span as failed.
type FailureRule uint8

// The rules, strongest first. The configuration selects them by name.
const (
	ByStatus    FailureRule = iota // status code ERROR
	ByHTTP                         // status code of the HTTP response
	ByGRPC                         // status code of the gRPC response
	ByErrorType                    // attribute error.type
	ByErrorTag                     // attribute error, used by OpenTracing and Zipkin
	ByException                    // event exception
	FailureRules
)

var failureRuleNames = [FailureRules]string{"status", "http", "grpc", "error-type", "error-tag", "exception"}

// FailureRuleNames returns the names of all rules in the configuration.
func FailureRuleNames() []string { return slices.Clone(failureRuleNames[:]) }

// String returns the name of r in the configuration.
func (r FailureRule) String() string {
	if r < FailureRules {
		return failureRuleNames[r]
	}
	return failureRuleNames[ByStatus]
}

// ParseFailureRule returns the rule with the given name, and reports whether it exists.
func ParseFailureRule(name string) (FailureRule, bool) {
	r := slices.Index(failureRuleNames[:], name)
	return FailureRule(max(r, 0)), r >= 0
}

// failureShift is the position of the rule's lowest bit in Flags.
const failureShift = 2

// Fail returns the flags of a span that failed according to rule r.
func (r FailureRule) Fail() Flags { return Error | Flags(r)<<failureShift }

// FailedBy returns the rule that marked the span as failed, and reports whether the span failed.
func (f Flags) FailedBy() (FailureRule, bool) {
	return FailureRule(f>>failureShift) & (1<<3 - 1), f&Error != 0
}
