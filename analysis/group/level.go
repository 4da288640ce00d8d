package group

// Level is what a set of statistics is kept for.
type Level uint8

// The levels, from the coarse.
const (
	LevelRequestType Level = iota // all requests of a type; edges by context only
	LevelGroup                    // requests of one group
)

var levelNames = [...]string{"request_type", "group"}

// String returns the lower-case name of l.
func (l Level) String() string { return levelNames[l] }
