package critpath

// Flags say what was unusual about a trace.
type Flags uint32

// What may be unusual about a trace. [Flags.Names] gives their names.
const (
	FlagIncomplete    Flags = 1 << iota // a span's parent is missing
	FlagRemoteParent                    // the only component's caller was not collected; complete all the same
	FlagNoRoot                          // no span without a parent: components, if any, stand in for roots
	FlagSeveralRoots                    // more than one root
	FlagCycle                           // a cycle of parents was broken
	FlagDuplicates                      // identical copies were dropped
	FlagConflicts                       // spans with the same ID but different content: the first was kept
	FlagSharedID                        // a CLIENT and a SERVER span shared an ID and were split
	FlagSkewCorrected                   // clock skew was corrected
	FlagSkewExcessive                   // a shift above MaxSkew was found and not applied
	FlagClamped                         // a child was cut to its parent's interval
	FlagOutside                         // a child lay wholly outside its parent and was dropped with its subtree
	FlagNegative                        // a span ends before it starts
	FlagAsyncTail                       // work went on after the root had ended
	FlagDetached                        // a messaging subtree was cut off
	FlagTooLong                         // a root's duration is trace.MaxDuration or more
)

// flagNames are in the order of the constants.
var flagNames = [...]string{
	"incomplete", "remote_parent", "no_root", "several_roots", "cycle", "duplicates", "conflicts", "shared_id",
	"skew_corrected", "skew_excessive", "clamped", "outside", "negative", "async_tail", "detached", "too_long",
}

// Names returns the snake_case names of the flags that are set, in the order of the constants; nil if none is.
func (f Flags) Names() []string {
	var names []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}
