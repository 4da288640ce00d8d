package config

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits on lists, in elements.
const (
	maxWords    = 1000
	maxSections = 1000
)

// list is the kind for lists of words.
type list struct {
	of *scalar[string]
}

func (l *list) want() string     { return "a list, each " + l.of.want() }
func (l *list) typeName() string { return "list" }

// read implements kind. It accepts a list, or words separated by commas.
func (l *list) read(r *reader, key string, n *yaml.Node) ([]string, bool) {
	items := n.Content
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null":
		for word := range strings.SplitSeq(n.Value, ",") {
			items = append(items,
				&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.TrimSpace(word), Line: n.Line})
		}
	case n.Kind != yaml.SequenceNode:
		r.fail(n, key, "want %s; [] for none", l.want())
		return nil, false
	}
	if len(items) > maxWords {
		r.fail(n, key, "%d elements, but at most %d are allowed", len(items), maxWords)
		return nil, false
	}
	values, fine := make([]string, 0, len(items)), true
	for _, item := range items {
		v, ok := l.of.read(r, key, item)
		if fine = fine && ok; ok {
			values = append(values, v)
		}
	}
	return values, fine
}

func (l *list) node(words []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for _, word := range words {
		n.Content = append(n.Content, l.of.node(word))
	}
	return n
}

// sections is the kind for lists of sections.
type sections[T any] struct {
	noun  string // for a single element
	keys  []definition[T]
	check func(*T) string // describes an error in an element, or returns ""
	name  func(*T) string // unique among the elements; nil if elements have no name
}

func (l *sections[T]) want() string     { return "a list of sections, one for each " + l.noun }
func (l *sections[T]) typeName() string { return "list" }

// descriptions returns the keys of an element.
func (l *sections[T]) descriptions() []*description {
	all := make([]*description, len(l.keys))
	for i, d := range l.keys {
		all[i] = d.about()
	}
	return all
}

// read returns all elements with their valid keys, even if it has recorded errors in some of them, so that checks that
// involve several keys can find further errors. It returns false if n isn't a list or contains too many elements.
func (l *sections[T]) read(r *reader, key string, n *yaml.Node) ([]T, bool) {
	if n.Kind != yaml.SequenceNode {
		r.fail(n, key, "want %s; [] for none", l.want())
		return nil, false
	}
	if len(n.Content) > maxSections {
		r.fail(n, key, "%d elements, but at most %d are allowed", len(n.Content), maxSections)
		return nil, false
	}
	names := make(map[string]bool)
	values := make([]T, len(n.Content))
	for i, item := range n.Content {
		at := element(key, i)
		l.element(r, at, item, &values[i])
		if l.name == nil {
			continue
		}
		if name := l.name(&values[i]); names[name] {
			r.fail(item, at, "there is already a %s %s; rename or remove one", l.noun, quote(name))
		} else {
			names[name] = name != ""
		}
	}
	return values, true
}

// element returns the key of element i of list, for errors.
func element(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// element reads the element n of the list into v. It runs check only if the element has no other errors.
func (l *sections[T]) element(r *reader, key string, n *yaml.Node, v *T) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, key, "want a section, not a %s", shapeOf(n))
		return
	}
	before := len(r.errors)
	for _, d := range l.keys {
		d.setDefault(v)
	}
	walker := walker[T]{r: r, definitions: l.keys, above: key + ".", to: v, given: make(map[string]bool)}
	walker.section(n, "")
	for _, d := range l.keys {
		if about := d.about(); about.required && !walker.given[about.key] {
			r.fail(n, key, "%s is missing; want %s", about.key, about.want)
		}
	}
	if len(r.errors) > before || l.check == nil {
		return
	}
	if problem := l.check(v); problem != "" {
		r.fail(n, key, "%s", problem)
	}
}

// node implements kind. In the elements, it omits keys that are empty and have no default.
func (l *sections[T]) node(values []T) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range values {
		item := &yaml.Node{Kind: yaml.MappingNode}
		for _, d := range l.keys {
			about, v := d.about(), d.value(&values[i])
			if about.defaultNode != nil || !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0) {
				item.Content = append(item.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: about.key},
					d.node(&values[i]))
			}
		}
		n.Content = append(n.Content, item)
	}
	return n
}
