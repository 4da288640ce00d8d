package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"
)

// Bounds of a file.
const (
	longestFile = 1 << 20 // bytes
	mostNodes   = 50_000  // keys, values, lists and sections
)

// readFile returns the file's bytes. The error does not repeat its name.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err
		}
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(f, longestFile+1))
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return text, err
}

// parse returns the one value that a text is, nil if it is empty; nil, too, after it noted what is wrong with it.
func (r *reader) parse(text []byte) *yaml.Node {
	if len(text) > longestFile {
		r.wrong(&yaml.Node{}, "", "more than %d bytes; that is no configuration", longestFile)
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
		r.wrong(&more, "", "a second document starts here; one is all there can be")
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

// yamlLine is how the parser begins what it says.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax notes that a text is no YAML.
func (r *reader) syntax(err error) {
	what := err.Error()
	n := &yaml.Node{}
	if at := yamlLine.FindStringSubmatch(what); at != nil {
		n.Line, _ = strconv.Atoi(at[1]) // 0 if it says none
		what = what[len(at[0]):]
	}
	r.wrong(n, "", "no YAML: %s", what)
}

// plain reports whether the tree at n, of at most mostNodes, has no aliases, anchors, tags or merges: they can make few bytes mean
// much, and nobody needs them here.
func (r *reader) plain(n *yaml.Node, nodes *int) bool {
	*nodes++
	switch {
	case *nodes > mostNodes:
		r.wrong(n, "", "more than %d keys and values; that is no configuration", mostNodes)
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "" || n.ShortTag() == "!!merge":
		r.wrong(n, "", "aliases, anchors and merges are not supported; write the value out")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		r.wrong(n, "", "the tag %s is not supported; write the value without it", quote(n.Tag))
		return false
	}
	for _, child := range n.Content {
		if !r.plain(child, nodes) {
			return false
		}
	}
	return true
}

// walker reads the keys of a section, and of those in it.
type walker struct {
	r           *reader
	definitions []definition
	above       string                            // what keys begin with where they are repeated
	put         func(i int, v any, at *yaml.Node) // takes the value of the definition with index i
	given       map[string]bool                   // keys met, whether their values are any good or not
}

// section reads the mapping n, whose keys begin with prefix.
func (w *walker) section(n *yaml.Node, prefix string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			w.r.wrong(name, w.above+prefix, "a key must be a word, not a %s", shapeOf(name))
			continue
		}
		w.key(name, prefix+name.Value, value)
	}
}

func (w *walker) key(name *yaml.Node, key string, value *yaml.Node) {
	i := indexOf(w.definitions, key)
	switch {
	case i >= 0 && w.given[key]:
		w.r.wrong(name, w.above+key, "given twice; leave one of them")
	case i >= 0:
		w.given[key] = true
		if v, ok := w.definitions[i].kind.read(w.r, w.above+key, value); ok {
			w.put(i, v, name)
		}
	case w.r.full(): // looking for what was meant takes its time
	case !w.isSection(key):
		w.r.wrong(name, "", "unknown key %s; %s", quote(w.above+key), w.suggest(key))
	case value.Kind == yaml.MappingNode:
		w.section(value, key+".")
	case value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null": // all below is commented out
	default:
		w.r.wrong(value, w.above+key, "a section, with %s below it, not a %s", strings.Join(w.below(key), ", "), shapeOf(value))
	}
}

func indexOf(definitions []definition, key string) int {
	for i := range definitions {
		if definitions[i].key == key {
			return i
		}
	}
	return -1
}

func (w *walker) isSection(key string) bool { return len(w.below(key)) > 0 }

// below returns the names that stand right below a section.
func (w *walker) below(section string) []string {
	var names []string
	for i := range w.definitions {
		if rest, ok := strings.CutPrefix(w.definitions[i].key, section+"."); ok {
			name, _, _ := strings.Cut(rest, ".")
			if len(names) == 0 || names[len(names)-1] != name {
				names = append(names, name)
			}
		}
	}
	return names
}

// suggest says what somebody who wrote an unknown key may have meant.
func (w *walker) suggest(key string) string {
	if best := w.nearest(key); best != "" {
		return "did you mean " + w.above + best + "?"
	}
	if w.above == "" {
		return "sibyl config print lists all keys"
	}
	var names []string
	for i := range w.definitions {
		names = append(names, w.definitions[i].key)
	}
	return fmt.Sprintf("possible are %s", strings.Join(names, ", "))
}

// nearest returns the key or section that differs least from what somebody wrote, "" if none is near: of the last word one in three
// characters may differ, and two more. A key that ends alike is near wherever it belongs.
func (w *walker) nearest(written string) string {
	if len(written) > longestWritten {
		return ""
	}
	written = strings.ToLower(strings.ReplaceAll(written, "_", "-"))
	last := len(written) - 1 - strings.LastIndexByte(written, '.')
	best, least := "", last/3+2
	for i := range w.definitions {
		for key := w.definitions[i].key; key != ""; key = above(key) {
			distance := levenshtein.ComputeDistance(written, key)
			if strings.HasSuffix(key, "."+written) {
				distance = min(distance, 1)
			}
			if distance < least {
				best, least = key, distance
			}
		}
	}
	return best
}

// above returns the section that a key or section stands in; "" if it stands in none.
func above(key string) string { return key[:max(0, strings.LastIndexByte(key, '.'))] }

// longestWritten bounds what is compared with keys, which are all shorter.
const longestWritten = 64
