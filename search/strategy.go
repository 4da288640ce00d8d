package search

// Strategy picks the tracepoints to switch on next. [Strategies] returns the published strategies; a caller of [Next]
// may supply another. The zero value stands for the default strategy.
type Strategy struct {
	Name string // name in decisions and investigations

	// Pick returns the tracepoints to switch on, best first and each with a reason. It must be pure and must not pick a
	// candidate twice.
	Pick func(q *Question) []Pick

	// Frugal switches a known location off unless its region is searched. Without it, the location stays on while its
	// own share is at least a tenth of the leading operation's.
	Frugal bool

	// UsesPairs means that Pick reads Question.Pairs, so that the caller must collect Input.Pairs.
	UsesPairs bool
}

// Strategies returns the published strategies, ascending by name.
func Strategies() []Strategy {
	return []Strategy{
		defaultStrategy(),
		{Name: "binary", Pick: binary},
		{Name: "covariance", Pick: covariance, UsesPairs: true},
		{Name: "cross-layer", Pick: crossLayer},
		{Name: "hierarchical", Pick: Hierarchical},
	}
}

// StrategyNames returns the names of the published strategies, ascending.
func StrategyNames() []string {
	var names []string
	for _, s := range Strategies() {
		names = append(names, s.Name)
	}
	return names
}

// PicksAtOnce limits the picks of strategies without a limit of their own.
const PicksAtOnce = 8
