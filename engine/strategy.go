package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/search"
)

// UnknownStrategyError reports that options or settings name an unknown strategy.
type UnknownStrategyError struct{ Name string }

// yardsticks are strategies of earlier versions that only the benchmarks still use.
var yardsticks = []string{"breadth-first", "flat", "random", "variables"}

// Error returns a message with the unknown name and the known names.
func (e *UnknownStrategyError) Error() string {
	text := fmt.Sprintf("unknown strategy %q", e.Name)
	if slices.Contains(yardsticks, e.Name) {
		text = fmt.Sprintf("strategy %q was removed; only `sibylbench localize` still uses it, for comparison", e.Name)
	}
	return text + ": choose one of " + strings.Join(search.StrategyNames(), ", ")
}

// StrategyNamed returns the strategy called name, either a published one or one in more. The empty name means the
// default. If there is no such strategy, it returns an [UnknownStrategyError].
func StrategyNamed(name string, more []search.Strategy) (search.Strategy, error) {
	name = cmp.Or(name, search.DefaultStrategy)
	for _, s := range append(search.Strategies(), more...) {
		if s.Name == name {
			return s, nil
		}
	}
	return search.Strategy{}, &UnknownStrategyError{Name: name}
}

// CheckStrategy returns an [UnknownStrategyError] if a [Core] with options o has no strategy called name.
func (o *Options) CheckStrategy(name string) error {
	_, err := StrategyNamed(name, o.Strategies)
	return err
}
