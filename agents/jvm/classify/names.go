package classify

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed names.txt
var namesText string

// names holds the names in names.txt, by kind. The file describes the kinds.
type names map[string]map[string]bool

var nameKinds = []string{"top", "second", "umbrella", "library", "launcher", "generic"}

func parseNames(text string) (names, error) {
	n := make(names)
	for _, kind := range nameKinds {
		n[kind] = make(map[string]bool)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		kind, name, _ := strings.Cut(line, " ")
		if n[kind] == nil || name == "" {
			return nil, fmt.Errorf("names.txt: %q is not a kind and a name", line)
		}
		n[kind][name] = true
	}
	return n, nil
}

// covers reports whether n contains name, or a prefix of name that ends before a dot, under the given kind.
func (n names) covers(kind, name string) bool {
	for {
		if n[kind][name] {
			return true
		}
		i := strings.LastIndexByte(name, '.')
		if i < 0 {
			return false
		}
		name = name[:i]
	}
}

// owner returns the number of leading segments that name the owner of a package or a Maven group: a project or the
// owner of a domain.
func (n names) owner(segments []string) int {
	return min(n.suffix(segments)+1, len(segments))
}

// suffix returns the number of leading segments that don't distinguish owners, such as com.
func (n names) suffix(segments []string) int {
	if len(segments) == 0 {
		return 0
	}
	for i := min(2, len(segments)); i > 0; i-- {
		if n["umbrella"][strings.Join(segments[:i], ".")] {
			return i
		}
	}
	country := len(segments[0]) == 2
	switch {
	case country && len(segments) > 1 && n["second"][segments[1]]:
		return 2
	case country || n["top"][segments[0]]:
		return 1
	}
	return 0
}

// ownerOf returns the prefix of name that identifies its owner.
func (n names) ownerOf(name string) string {
	s := segments(name)
	return strings.Join(s[:n.owner(s)], ".")
}

func segments(name string) []string {
	if name == "" {
		return nil
	}
	return strings.Split(name, ".")
}

// words returns the words of name that distinguish projects: runs of at least three ASCII letters, in lower case,
// except generic words.
func (n names) words(name string) []string {
	var all []string
	for _, w := range strings.FieldsFunc(strings.ToLower(name), func(c rune) bool { return c < 'a' || c > 'z' }) {
		if len(w) >= 3 && !n["generic"][w] {
			all = append(all, w)
		}
	}
	return all
}
