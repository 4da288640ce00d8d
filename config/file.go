package config

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"
)

// Limits on a file.
const (
	maxFile  = 1 << 20 // bytes
	maxNodes = 50_000  // keys, values, lists and sections
)

// readFile returns the first maxFile+1 bytes of a file, so that the caller can tell whether it is too large. Errors
// don't repeat the file's name.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err
		}
		return nil, err
	}
	defer func() { _ = f.Close() }() // the file is only read
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return text, err
}

// parse returns the root of a YAML document. It returns nil if text is empty or after it has recorded an error.
func (r *reader) parse(text []byte) *yaml.Node {
	if len(text) > maxFile {
		r.fail(&yaml.Node{}, "", "more than %d bytes; want a smaller file", maxFile)
		return nil
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	var document, more yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		r.syntax(err)
		return nil
	}
	if err := decoder.Decode(&more); err == nil {
		r.fail(&more, "", "a second document starts here; only one is allowed")
		return nil
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil
	}
	root := document.Content[0]
	nodes := 0
	if !r.plain(root, &nodes) {
		return nil
	}
	return root
}

// yamlLine matches the start of the parser's errors.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax records an error from the parser.
func (r *reader) syntax(err error) {
	message := err.Error()
	n := &yaml.Node{}
	if at := yamlLine.FindStringSubmatch(message); at != nil {
		n.Line, _ = strconv.Atoi(at[1]) // 0 if the error has no line
		message = message[len(at[0]):]
	}
	r.fail(n, "", "invalid YAML: %s", message)
}

// plain reports whether the tree at n has at most maxNodes nodes and no aliases, anchors, tags or merges, which could
// make a few bytes expand without limit. Otherwise, it records an error. nodes counts the nodes visited so far.
func (r *reader) plain(n *yaml.Node, nodes *int) bool {
	*nodes++
	switch {
	case *nodes > maxNodes:
		r.fail(n, "", "more than %d keys and values; want a smaller file", maxNodes)
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "" || n.ShortTag() == "!!merge":
		r.fail(n, "", "aliases, anchors and merges are not supported; write the value out")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		r.fail(n, "", "the tag %s is not supported; write the value without it", quote(n.Tag))
		return false
	}
	for _, child := range n.Content {
		if !r.plain(child, nodes) {
			return false
		}
	}
	return true
}

// walker reads the keys of a section and its subsections.
type walker[T any] struct {
	r           *reader
	definitions []definition[T]
	above       string            // prefix of keys in error messages
	to          *T                // receives the values
	given       map[string]bool   // keys that occurred, whether valid or not
	origins     map[string]string // positions of the valid keys; nil if not needed
}

// section reads the mapping n. The keys in it start with prefix.
func (w *walker[T]) section(n *yaml.Node, prefix string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			w.r.fail(name, w.above+prefix, "a key must be a word, not a %s", shapeOf(name))
			continue
		}
		w.key(name, prefix+name.Value, value)
	}
}

func (w *walker[T]) key(name *yaml.Node, key string, value *yaml.Node) {
	i := slices.IndexFunc(w.definitions, func(d definition[T]) bool { return d.about().key == key })
	switch {
	case i >= 0 && w.given[key]:
		w.r.fail(name, w.above+key, "given twice; remove one")
	case i >= 0:
		w.given[key] = true
		if w.definitions[i].read(w.r, w.above+key, value, w.to) && w.origins != nil {
			w.origins[key] = w.r.where(name)
		}
	case w.r.full(): // finding a suggestion is expensive
	case !w.isSection(key):
		w.r.fail(name, "", "unknown key %s; %s", quote(w.above+key), w.suggest(key))
	case value.Kind == yaml.MappingNode:
		w.section(value, key+".")
	case value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null": // all keys in it are commented out
	default:
		w.r.fail(value, w.above+key, "want a section with %s, not a %s", strings.Join(w.below(key), ", "),
			shapeOf(value))
	}
}

func (w *walker[T]) isSection(key string) bool { return len(w.below(key)) > 0 }

// below returns the names of the keys and sections directly below a section. It returns nil if section is a key or
// unknown.
func (w *walker[T]) below(section string) []string {
	var names []string
	for _, d := range w.definitions {
		if rest, ok := strings.CutPrefix(d.about().key, section+"."); ok {
			name, _, _ := strings.Cut(rest, ".")
			if len(names) == 0 || names[len(names)-1] != name {
				names = append(names, name)
			}
		}
	}
	return names
}

// suggest returns a remedy for an unknown key.
func (w *walker[T]) suggest(key string) string {
	if best := w.nearest(key); best != "" {
		return "did you mean " + w.above + best + "?"
	}
	if w.above == "" {
		return "sibyl config print lists all keys"
	}
	var names []string
	for _, d := range w.definitions {
		names = append(names, d.about().key)
	}
	return "valid keys are " + strings.Join(names, ", ")
}

// nearest returns the key or section with the smallest edit distance to written. It returns "" if no key is near, or if
// written is too long to compare. The distance may be at most one plus a third of the length of the last word. If it is
// more than half of that length, both keys must start with the same letter. A key that ends with written, in any
// section, has distance 1.
func (w *walker[T]) nearest(written string) string {
	if written == "" || len(written) > maxCompared {
		return ""
	}
	written = strings.ToLower(strings.ReplaceAll(written, "_", "-"))
	last := len(written) - 1 - strings.LastIndexByte(written, '.')
	best, least := "", last/3+2
	for _, d := range w.definitions {
		for key := d.about().key; key != ""; key = above(key) {
			distance := levenshtein.ComputeDistance(written, key)
			if strings.HasSuffix(key, "."+written) {
				distance = min(distance, 1)
			}
			if 2*distance > last && key[0] != written[0] {
				continue
			}
			if distance < least {
				best, least = key, distance
			}
		}
	}
	return best
}

// above returns the section of a key or section, or "" at the top level.
func above(key string) string { return key[:max(0, strings.LastIndexByte(key, '.'))] }

// maxCompared is the maximum length of a key that is compared with definitions. All defined keys are shorter.
const maxCompared = 64
