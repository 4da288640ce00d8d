package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/search"
)

// UnknownStrategyError reports that settings name a strategy that this version does not have.
type UnknownStrategyError struct{ Name string }

// yardsticks are the strategies of earlier versions that only the benchmarks still have.
var yardsticks = []string{"breadth-first", "flat", "random", "variables"}

// Error returns the name, and the names to choose from.
func (e *UnknownStrategyError) Error() string {
	text := fmt.Sprintf("no strategy is called %q", e.Name)
	if slices.Contains(yardsticks, e.Name) {
		text = fmt.Sprintf("strategy %q has become a yardstick of `sibylbench localize`, and is no longer offered here", e.Name)
	}
	return text + ": choose one of " + strings.Join(search.StrategyNames(), ", ")
}

// StrategyNamed returns the published strategy, or the one in more, with the given name, and the default one for the empty name. The
// error is an [UnknownStrategyError].
func StrategyNamed(name string, more []search.Strategy) (search.Strategy, error) {
	name = cmp.Or(name, search.DefaultStrategy)
	for _, s := range append(search.Strategies(), more...) {
		if s.Name == name {
			return s, nil
		}
	}
	return search.Strategy{}, &UnknownStrategyError{Name: name}
}

// CheckStrategy returns an [UnknownStrategyError] if a [Core] with options o has no strategy of that name.
func (o *Options) CheckStrategy(name string) error {
	_, err := StrategyNamed(name, o.Strategies)
	return err
}
