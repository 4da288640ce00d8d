package config

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of lists, in elements.
const (
	mostWords   = 1000
	mostRecords = 1000
)

// list is the kind of lists of words; its values are of type []string.
type list struct {
	of *scalar
}

func (l *list) want() string     { return "a list, each " + l.of.want() }
func (l *list) typeName() string { return "list" }

// read takes a list, or words with commas between them.
func (l *list) read(r *reader, key string, n *yaml.Node) (any, bool) {
	items := n.Content
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null":
		for word := range strings.SplitSeq(n.Value, ",") {
			items = append(items, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.TrimSpace(word), Line: n.Line})
		}
	case n.Kind != yaml.SequenceNode:
		r.wrong(n, key, "want %s; [] for none", l.want())
		return nil, false
	}
	if len(items) > mostWords {
		r.wrong(n, key, "%d elements; at most %d are possible", len(items), mostWords)
		return nil, false
	}
	values, fine := make([]string, 0, len(items)), true
	for _, item := range items {
		v, ok := l.of.read(r, key, item)
		if fine = fine && ok; ok {
			values = append(values, as[string](v))
		}
	}
	return values, fine
}

func (l *list) node(v any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for _, word := range as[[]string](v) {
		n.Content = append(n.Content, l.of.node(word))
	}
	return n
}

// member is a key of the elements of a list.
type member[T any] struct {
	definition
	at       func(*T) reflect.Value // the field
	required bool
}

// field returns the member with the given name, values of type V that belong in the field that at returns.
func field[T, V any](name string, k kind, at func(*T) *V, help string) member[T] {
	return member[T]{
		definition: definition{key: name, kind: k, help: help},
		at:         func(t *T) reflect.Value { return reflect.ValueOf(at(t)).Elem() },
	}
}

// must says that every element has the member.
func (m member[T]) must() member[T] {
	m.required = true
	return m
}

// otherwise says what the member is where an element does not have it.
func (m member[T]) otherwise(v any) member[T] {
	m.preset = v
	return m
}

// records is the kind of lists of sections; its values are of type []T.
type records[T any] struct {
	noun    string // for one element
	members []member[T]
	check   func(*T) string // says what is wrong with an element; "": nothing
	name    func(*T) string // which no two elements share; nil: there is no such thing
}

func (l *records[T]) want() string     { return "a list of sections, one for each " + l.noun }
func (l *records[T]) typeName() string { return "list" }

// definitions returns those of the members.
func (l *records[T]) definitions() []definition {
	all := make([]definition, len(l.members))
	for i := range l.members {
		all[i] = l.members[i].definition
	}
	return all
}

func (l *records[T]) read(r *reader, key string, n *yaml.Node) (any, bool) {
	if n.Kind != yaml.SequenceNode {
		r.wrong(n, key, "want %s; [] for none", l.want())
		return nil, false
	}
	if len(n.Content) > mostRecords {
		r.wrong(n, key, "%d elements; at most %d are possible", len(n.Content), mostRecords)
		return nil, false
	}
	before, names := len(r.mistakes), make(map[string]bool)
	values := make([]T, len(n.Content))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", key, i)
		if !l.element(r, at, item, &values[i]) || l.name == nil {
			continue
		}
		if name := l.name(&values[i]); names[name] {
			r.wrong(item, at, "there is another %s %s; give each a name of its own", l.noun, quote(name))
		} else {
			names[name] = true
		}
	}
	return values, len(r.mistakes) == before
}

// element reads one element and reports whether nothing is wrong with it.
func (l *records[T]) element(r *reader, key string, n *yaml.Node, v *T) bool {
	if n.Kind != yaml.MappingNode {
		r.wrong(n, key, "want a section, not a %s", shapeOf(n))
		return false
	}
	before := len(r.mistakes)
	given := make(map[string]bool)
	for i := range l.members {
		if m := &l.members[i]; m.preset != nil {
			m.at(v).Set(reflect.ValueOf(m.preset))
		}
	}
	walker := walker{r: r, definitions: l.definitions(), above: key + ".", put: func(i int, x any, _ *yaml.Node) {
		l.members[i].at(v).Set(reflect.ValueOf(x))
	}, given: given}
	walker.section(n, "")
	for i := range l.members {
		if m := &l.members[i]; m.required && !given[m.key] {
			r.wrong(n, key, "%s is missing; want %s", m.key, m.kind.want())
		}
	}
	if len(r.mistakes) > before {
		return false
	}
	if l.check != nil {
		if what := l.check(v); what != "" {
			r.wrong(n, key, "%s", what)
			return false
		}
	}
	return true
}

// node leaves out members that say nothing: those that are empty, unless that is not what they are by default.
func (l *records[T]) node(v any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	values := as[[]T](v)
	for i := range values {
		item := &yaml.Node{Kind: yaml.MappingNode}
		for _, m := range l.members {
			if x := m.at(&values[i]); m.preset != nil || !x.IsZero() && (x.Kind() != reflect.Slice || x.Len() > 0) {
				item.Content = append(item.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: m.key}, m.kind.node(x.Interface()))
			}
		}
		n.Content = append(n.Content, item)
	}
	return n
}
