package ingest

import (
	"fmt"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// MaxKeys is the most attribute keys that may be asked for by name, beside those of the tracepoint protocol.
const MaxKeys = 32

// Keys is a compiled set of attribute keys. Decoders read the values of these and skip all others unread. The keys of the
// tracepoint protocol (trace.KeyTracepoint and so on) always belong to it. Keys is immutable and safe to share.
type Keys struct {
	all     bool
	names   []string
	symbols []trace.Symbol
	first   [256]uint8 // by hash: index+1 in names of the first key of a chain; 0: none
	next    []uint8    // index+1 of the next key of the chain
}

// Places in Keys.names of the keys that mean something to the [Builder]; the keys asked for come after them.
const (
	keyTracepoint = iota
	keyJoin
	keyPlan
	keyArm
)

// Unwanted is what [Keys.Find] returns for keys whose values nobody asked for.
const Unwanted = -1

// unnamed is what Find returns for a key without a name of its own in a set of all keys.
const unnamed = MaxKeys + 16

// NewKeys compiles the set of the given keys. It returns an error if there are more than [MaxKeys].
func NewKeys(names ...string) (*Keys, error) {
	k := &Keys{}
	for _, name := range append([]string{trace.KeyTracepoint, trace.KeyJoin, trace.KeyPlan, trace.KeyArm}, names...) {
		k.add(name)
	}
	if len(k.names) > MaxKeys+4 {
		return nil, fmt.Errorf("%d attribute keys asked for, at most %d are possible", len(k.names)-4, MaxKeys)
	}
	return k, nil
}

// AllKeys returns the set of all keys: every attribute is read.
func AllKeys() *Keys {
	k, _ := NewKeys() // no names, no error
	k.all = true
	return k
}

func (k *Keys) add(name string) {
	if name == "" || slices.Contains(k.names, name) {
		return
	}
	k.names = append(k.names, name)
	k.symbols = append(k.symbols, trace.SymbolOf([]byte(name)))
	if len(k.names) > MaxKeys+4 {
		return // an error, see NewKeys
	}
	h := keyHash([]byte(name))
	k.next = append(k.next, k.first[h])
	k.first[h] = uint8(len(k.names))
}

// keyHash spreads keys by length and three of their bytes. It is all that most unwanted keys cost.
func keyHash(key []byte) uint8 {
	n := len(key)
	return uint8(n)*31 + key[0]*7 + key[n>>1]*13 + key[n-1]
}

// Find returns the place of key in the set, [Unwanted] if it is not in the set.
func (k *Keys) Find(key []byte) int {
	if len(key) != 0 {
		for i := k.first[keyHash(key)]; i != 0; i = k.next[i-1] {
			if k.names[i-1] == string(key) {
				return int(i - 1)
			}
		}
		if k.all {
			return unnamed
		}
	}
	return Unwanted
}

// intern stores the names of the set in table, so that symbols of attributes can be told apart in reports.
func (k *Keys) intern(table *trace.Table) {
	for _, name := range k.names {
		table.Symbol(name)
	}
}
