package eval

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/bench/eval/yardstick"
	"github.com/sibyl-trace/sibyl/search"
)

// Strategies returns the published strategies and the yardsticks, ascending by name.
func Strategies() []search.Strategy {
	all := append(search.Strategies(), yardstick.Strategies()...)
	slices.SortFunc(all, func(a, b search.Strategy) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// StrategyNames returns the names of [Strategies], in their order.
func StrategyNames() []string {
	var names []string
	for _, s := range Strategies() {
		names = append(names, s.Name)
	}
	return names
}
