package describe

import (
	"fmt"
	"strings"

	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// shownFamilies is the maximum number of families of names listed in a text.
const shownFamilies = 5

// Families returns sentences about operations whose names seem to contain identifiers (saw), and about the remedy (do).
// Both are empty if there are no such operations.
func Families(n *Names, all []trace.Family) (saw, do string) {
	if len(all) == 0 {
		return "", ""
	}
	var names []string
	for i := range all[:min(shownFamilies, len(all))] {
		f := &all[i]
		names = append(names,
			fmt.Sprintf("%s %s (%s)", n.Text(f.Service), n.Clean(f.Name), units.Plural(f.Names, "name")))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, "and "+units.Count(more)+" more")
	}
	return "Operation names seem to contain IDs, so each is judged by itself and has too few calls: " +
			strings.Join(names, ", ") + ".",
		"Name these spans by their route, as SDKs that know it do (http.route), " +
			"by their statement without values, or by their key without its ID. " +
			"Until then, a rule (rules: attribute and name) can make such requests one request type."
}
