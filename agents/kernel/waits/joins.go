package waits

// Reason is a reason for which no span has been found for a wait.
type Reason int

// The reasons.
const (
	MissingNotSought   Reason = iota // the process keeps no context that the agent knows
	MissingNoGoroutine               // a thread of Go's runtime, which works for no request
	MissingNoSpan                    // the thread worked for no span
	MissingUnreadable                // memory of the process was not in place
	MissingUnsampled                 // a span that is not exported
	MissingInvalid                   // not the digits of an identity
	MissingNoService                 // the name of the service is unknown
	MissingEnded                     // another process has the number by now
	NumReasons         = iota
)

var reasonTexts = [NumReasons]string{
	"not_sought", "no_goroutine", "no_span", "unreadable", "unsampled", "invalid", "no_service", "ended",
}

// String returns the name of the reason, as in JSON.
func (r Reason) String() string { return reasonTexts[r] }

// Joins counts waits above a threshold by the result of joining them.
type Joins struct {
	Exact   uint64
	Missing [NumReasons]uint64
}

// Since returns the counts since an earlier time.
func (c Joins) Since(before Joins) Joins {
	c.Exact -= before.Exact
	for r := range c.Missing {
		c.Missing[r] -= before.Missing[r]
	}
	return c
}
