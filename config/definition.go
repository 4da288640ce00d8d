package config

import (
	"reflect"

	"go.yaml.in/yaml/v3"
)

// definition describes a key whose value is a field of a T. T is Config for the keys of the configuration itself, and
// the type of an element for the keys in a list of sections.
type definition[T any] interface {
	about() *description
	// read sets the field in to from n. If n is invalid, it records the reason in r and returns false.
	read(r *reader, key string, n *yaml.Node, to *T) bool
	// node returns the value as YAML for people, with secrets hidden.
	node(of *T) *yaml.Node
	// value returns the field.
	value(of *T) reflect.Value
	// setDefault sets the field to its default, if it has one.
	setDefault(to *T)
}

// description is the part of a definition that doesn't depend on types. The flag of a key is the key with dashes
// instead of dots. Its environment variable is SIBYL_ followed by the key in capitals with underscores.
type description struct {
	key         string // like "otlp.grpc"
	help        string // a sentence with the unit and the meaning of 0 or empty
	want        string // describes valid values; it follows the word "want"
	typeName    string
	scalar      bool
	defaultNode *yaml.Node // the default as YAML; nil if there is no default
	live        bool       // applied by a reload; other keys need a restart
	required    bool       // mandatory in every element of the list
	elements    []*description
}

// field is a definition of a key whose value has type V.
type field[T, V any] struct {
	description
	kind    kind[V]
	at      func(*T) *V
	initial V // the default
}

// newField returns the definition of a key of the given kind. at returns the field for the value.
func newField[T, V any](key string, k kind[V], at func(*T) *V, help string) *field[T, V] {
	f := &field[T, V]{
		description: description{key: key, help: help, want: k.want(), typeName: k.typeName()},
		kind:        k,
		at:          at,
	}
	_, f.scalar = k.(*scalar[V])
	if l, ok := k.(interface{ descriptions() []*description }); ok {
		f.elements = l.descriptions()
	}
	return f
}

// withDefault sets the default of a key.
func (f *field[T, V]) withDefault(v V) *field[T, V] {
	f.initial, f.defaultNode = v, f.kind.node(v)
	return f
}

// required makes it an error if an element of the list lacks the key.
func (f *field[T, V]) required() *field[T, V] {
	f.description.required = true
	return f
}

// reloadable makes reloads apply changes of the key.
func (f *field[T, V]) reloadable() *field[T, V] {
	f.live = true
	return f
}

func (f *field[T, V]) about() *description { return &f.description }

func (f *field[T, V]) read(r *reader, key string, n *yaml.Node, to *T) bool {
	v, ok := f.kind.read(r, key, n)
	if ok {
		*f.at(to) = v
	}
	return ok
}

func (f *field[T, V]) node(of *T) *yaml.Node { return f.kind.node(*f.at(of)) }

func (f *field[T, V]) value(of *T) reflect.Value { return reflect.ValueOf(f.at(of)).Elem() }

func (f *field[T, V]) setDefault(to *T) {
	if f.defaultNode != nil {
		*f.at(to) = f.initial
	}
}

// equal reports whether the key d has the same value in a and b.
func equal[T any](d definition[T], a, b *T) bool {
	return reflect.DeepEqual(d.value(a).Interface(), d.value(b).Interface())
}
