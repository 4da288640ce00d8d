package critpath

// Flags is a set of irregularities of a trace.
type Flags uint32

// The irregularities of a trace. [Flags.Names] returns their names.
const (
	FlagIncomplete Flags = 1 << iota // the parent of a span was missing
	// The caller of the only component was not collected; the trace counts as complete.
	FlagRemoteParent
	// Every span had a parent; the top spans of components, if any, were taken as roots.
	FlagNoRoot
	FlagSeveralRoots // there was more than one root
	FlagCycle        // a cycle of parents was broken
	FlagDuplicates   // identical copies of spans were dropped
	FlagConflicts    // spans had the same ID and different content; the first was kept
	// A CLIENT and a SERVER span, or the attempts of a call, shared an ID and were separated.
	FlagSharedID
	FlagSkewCorrected // clock skew was corrected
	FlagClamped       // a child was clamped to its parent's interval
	// A span started after its parent had ended, but during a more distant ancestor, and counts below that ancestor.
	FlagMoved
	FlagOutside   // a tracepoint span lay outside its parent and was dropped with its subtree
	FlagNegative  // a span ended before it started
	FlagAsyncTail // work continued after the root had ended
	// A messaging consumer, or work that started after its parent ended, became a root of its own.
	FlagDetached
	FlagTooLong // the duration of a root was trace.MaxDuration or more
)

// flagNames holds the names of the flags in the order of the constants.
var flagNames = [...]string{
	"incomplete", "remote_parent", "no_root", "several_roots", "cycle", "duplicates", "conflicts", "shared_id",
	"skew_corrected", "clamped", "moved", "outside", "negative", "async_tail", "detached", "too_long",
}

// Names returns the snake_case names of the flags in f, in the order of the constants, or nil if f is empty.
func (f Flags) Names() []string {
	var names []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// set adds flag to f if on is true.
func (f *Flags) set(flag Flags, on bool) {
	if on {
		*f |= flag
	}
}
