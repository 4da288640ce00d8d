package ingest

import (
	"fmt"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// MaxKeys is the maximum number of attribute keys in [NewKeys], excluding the keys of the tracepoint protocol.
const MaxKeys = 32

// Keys is a compiled set of attribute keys. Decoders read the values of these keys and skip all others. The set always
// includes the keys of the tracepoint protocol (trace.KeyTracepoint and so on), and the keys that identify operations
// and their callees or indicate failures. A Keys is immutable and safe to share.
type Keys struct {
	all     bool
	names   []string
	symbols []trace.Symbol
	kept    [requested]bool // whether a key that Builder interprets was also requested
	only    [1 << 7]bool    // by index in names; see Interprets
	failing FailureRules
	first   [256]uint8 // by hash: 1 + index in names of the first key of a chain, or 0
	next    []uint8    // 1 + index of the next key of the chain, or 0
}

// Indexes in Keys.names of the keys that [Builder] interprets. The requested keys follow them.
const (
	keyTracepoint = iota
	keyJoin
	keyPlan
	keyArm
	firstIdentityKey                                        // start of identityKeys
	firstSignKey     = firstIdentityKey + len(identityKeys) // start of signKeys
	requested        = firstSignKey + len(signKeys)
)

// Unwanted is returned by [Keys.Find] for keys that are not in the set.
const Unwanted = -1

// unnamed is the index that Find returns for each key without a name in the set, if the set contains all keys.
const unnamed = MaxKeys + requested

// NewKeys compiles the set of the given keys. It returns an error if names contains more than [MaxKeys] keys, not
// counting keys that every set includes.
func NewKeys(names ...string) (*Keys, error) {
	k := &Keys{failing: AllFailureRules}
	for _, name := range []string{trace.KeyTracepoint, trace.KeyJoin, trace.KeyPlan, trace.KeyArm} {
		k.add(name)
	}
	for i := range identityKeys {
		k.add(identityKeys[i].name)
	}
	for i := range signKeys {
		k.add(signKeys[i].name)
	}
	for _, name := range names {
		if i := slices.Index(k.names[:requested], name); i >= 0 {
			k.kept[i] = true
		} else {
			k.add(name)
		}
	}
	k.setOnly()
	if n := len(k.names) - requested; n > MaxKeys {
		return nil, fmt.Errorf("%d attribute keys requested, the maximum is %d", n, MaxKeys)
	}
	return k, nil
}

// AllKeys returns the set of all keys.
func AllKeys() *Keys {
	k, _ := NewKeys() // no error is possible without names
	k.all = true
	k.setOnly()
	return k
}

// FailingBy returns a copy of k that recognises failures only by the given rules.
func (k *Keys) FailingBy(rules FailureRules) *Keys {
	other := *k
	other.failing = rules
	return &other
}

func (k *Keys) add(name string) {
	if name == "" || slices.Contains(k.names, name) {
		return
	}
	k.names = append(k.names, name)
	k.symbols = append(k.symbols, trace.SymbolOf([]byte(name)))
	if len(k.names) > requested+MaxKeys {
		return // NewKeys returns an error
	}
	h := keyHash([]byte(name))
	k.next = append(k.next, k.first[h])
	k.first[h] = uint8(len(k.names))
}

// keyHash hashes key by its length and three of its bytes. For most keys outside a set, this is the entire cost of
// Find. key must not be empty.
func keyHash(key []byte) uint8 {
	n := len(key)
	return uint8(n)*31 + key[0]*7 + key[n>>1]*13 + key[n-1]
}

// Find returns the index of key in the set, or [Unwanted] if the set does not contain it.
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

// Interprets reports whether [Builder] interprets the values of a key without also keeping them as attributes. found is
// the result of Find for the key.
func (k *Keys) Interprets(found int) bool { return k.only[found&(len(k.only)-1)] }

// setOnly computes k.only from k.kept and k.all.
func (k *Keys) setOnly() {
	for i := firstIdentityKey; i < requested; i++ {
		k.only[i] = !k.kept[i] && !k.all
	}
}

// Names returns the keys whose values become attributes, except the keys of the protocol.
func (k *Keys) Names() []string {
	names := slices.Clone(k.names[requested:])
	for i := firstIdentityKey; i < requested; i++ {
		if k.kept[i] {
			names = append(names, k.names[i])
		}
	}
	return names
}

// nameOf returns the key with the index found: a result of Find, or a further kind of value (see [Names.Value]). It
// returns "" for unnamed keys.
func (k *Keys) nameOf(found int) string {
	switch {
	case found < len(k.names):
		return k.names[found]
	case found == versions:
		return versionKey
	case found == hosts:
		return hostKeys[0]
	}
	return ""
}

// intern stores the names of the set in table, so that reports can name attributes.
func (k *Keys) intern(table *trace.Table) {
	for _, name := range k.names {
		table.Symbol(name)
	}
}
