package waits

// Reason is a reason why no span has been found for a wait.
type Reason int

// The reasons.
const (
	MissingNotSought   Reason = iota // the agent does not know a context of the process
	MissingNoGoroutine               // a thread of Go's runtime, which works for no request
	MissingNoSpan                    // the thread worked for no span
	MissingUnreadable                // memory of the process was paged out
	MissingUnsampled                 // the span is not exported
	MissingInvalid                   // the digits of an ID are invalid
	MissingNoService                 // the name of the service is unknown
	MissingEnded                     // the process is unknown, or its ID now belongs to another process
	NumReasons         = iota
)

var reasonTexts = [NumReasons]string{
	"not_sought", "no_goroutine", "no_span", "unreadable", "unsampled", "invalid", "no_service", "ended",
}

// String returns the name of the reason, as used in JSON.
func (r Reason) String() string { return reasonTexts[r] }

// Joins counts waits above a threshold by the result of joining them.
type Joins struct {
	Exact   uint64
	Missing [NumReasons]uint64
}

// Since returns the difference between c and `before`, the counts at an earlier time.
func (c Joins) Since(before Joins) Joins {
	c.Exact -= before.Exact
	for r := range c.Missing {
		c.Missing[r] -= before.Missing[r]
	}
	return c
}
