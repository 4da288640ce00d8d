package group

// Level is the granularity of a set of statistics.
type Level uint8

// The levels, coarsest first.
const (
	LevelRequestType Level = iota // all requests of a type; edges by context only
	LevelGroup                    // requests of one group
)

var levelNames = [...]string{"request_type", "group"}

// String returns the lower-case name of l.
func (l Level) String() string { return levelNames[l] }
