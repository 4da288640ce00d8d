package directory

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Patterns match like regular expressions with .* in place of *.
func TestPatterns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*.]{0,8}`).Draw(t, "pattern")
		name := rapid.StringMatching(`[ab.]{0,8}`).Draw(t, "name")
		same := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		want := same.MatchString(name)
		if got := Matches(pattern, name); got != want {
			t.Fatalf("%q matches %q: %t, want %t", pattern, name, got, want)
		}
	})
}
