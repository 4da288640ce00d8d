package stats

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Item is a value of a sample with its key.
type Item[V any] struct {
	Key   uint64
	Value V
}

// Sample is a uniform random sample of bounded size: the values with the smallest keys (bottom-k; theta sketch). Keys
// must be good hashes of the identity of a request, and equal keys must have equal values. The sample then depends only
// on the set of values added, not on the order, on merges or on repetitions.
//
// A sample contains exactly the added values whose key is below its threshold. So it is uniform even after merging
// samples of different sizes or rates. The threshold never rises: [Sample.Resize] to a larger k only affects values
// added later.
type Sample[V any] struct {
	k         int
	threshold uint64    // keys below it are kept; 0 stands for 2^64
	items     []Item[V] // at most k, ascending by key, all below the threshold
}

// NewSample returns an empty sample of at most k > 0 values.
func NewSample[V any](k int) Sample[V] {
	if k <= 0 {
		panic(fmt.Sprintf("stats: sample of %d", k))
	}
	return Sample[V]{k: k}
}

// Accepts reports whether Add would keep a value with this key, so that the caller can avoid building the value. If the
// sample is full and the key is too large, Accepts lowers the threshold to the key, as Add would. The zero Sample
// accepts nothing.
func (s *Sample[V]) Accepts(key uint64) bool {
	if !s.admits(key) || s.k == 0 {
		return false
	}
	if len(s.items) == s.k && key > s.items[s.k-1].Key {
		s.lower(key)
		return false
	}
	_, found := s.search(key)
	return !found
}

// Add adds a value and reports whether it was kept. A value is not kept if its key is already in the sample.
func (s *Sample[V]) Add(key uint64, v V) bool {
	if !s.Accepts(key) {
		return false
	}
	at, _ := s.search(key)
	s.items = slices.Insert(s.items, at, Item[V]{key, v})
	s.trim()
	return true
}

func (s *Sample[V]) admits(key uint64) bool { return s.threshold == 0 || key < s.threshold }

func (s *Sample[V]) search(key uint64) (int, bool) {
	return slices.BinarySearchFunc(s.items, key, func(i Item[V], k uint64) int { return cmp.Compare(i.Key, k) })
}

// lower lowers the threshold to key if it is higher. The caller must drop the values that are not below key.
func (s *Sample[V]) lower(key uint64) {
	if s.admits(key) {
		// 0 stands for no threshold. A threshold of 1 instead of 0 makes no difference with random keys.
		s.threshold = max(1, key)
	}
}

// trim drops values beyond k or not below the threshold.
func (s *Sample[V]) trim() {
	if len(s.items) > s.k {
		s.lower(s.items[s.k].Key)
	}
	n := len(s.items)
	for n > 0 && !s.admits(s.items[n-1].Key) {
		n--
	}
	clear(s.items[n:])
	s.items = s.items[:n]
}

// Merge adds the values of o. It does not change o, but shares its values. The result is a uniform sample of the union
// of both populations. Its threshold is at most the lower of the two, and its bound is the larger of the two.
func (s *Sample[V]) Merge(o Sample[V]) {
	s.k = max(s.k, o.k)
	if o.threshold != 0 {
		s.lower(o.threshold)
	}
	if len(o.items) == 0 {
		s.trim()
		return
	}
	merged := make([]Item[V], 0, min(2*s.k, len(s.items)+len(o.items)))
	a, b := s.items, o.items
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Key < b[0].Key:
			merged, a = append(merged, a[0]), a[1:]
		case len(a) == 0 || b[0].Key < a[0].Key:
			merged, b = append(merged, b[0]), b[1:]
		default:
			merged, a, b = append(merged, a[0]), a[1:], b[1:]
		}
	}
	s.items = merged
	s.trim()
}

// Resize changes the bound k. A smaller bound drops values immediately; a larger one only affects values added later.
// It panics unless k is positive.
func (s *Sample[V]) Resize(k int) {
	if k <= 0 {
		panic(fmt.Sprintf("stats: sample of %d", k))
	}
	s.k = k
	s.trim()
}

// Replace replaces each value v with f(v).
func (s *Sample[V]) Replace(f func(V) V) {
	s.items = slices.Clone(s.items) // merged samples may share them
	for i := range s.items {
		s.items[i].Value = f(s.items[i].Value)
	}
}

// Len returns the number of values kept.
func (s *Sample[V]) Len() int { return len(s.items) }

// Cap returns the bound k.
func (s *Sample[V]) Cap() int { return s.k }

// Rate returns the sampling probability of a request, in (0, 1].
func (s *Sample[V]) Rate() float64 {
	if s.threshold == 0 {
		return 1
	}
	return math.Ldexp(float64(s.threshold), -64)
}

// All yields keys and values in ascending order of the key, which is a random order of the values.
func (s *Sample[V]) All() iter.Seq2[uint64, V] {
	return func(yield func(uint64, V) bool) {
		for _, i := range s.items {
			if !yield(i.Key, i.Value) {
				return
			}
		}
	}
}

const (
	sampleVersion = 1
	maxSample     = 1 << 16 // the largest k that is decoded
)

// AppendBinary appends s to b. It uses appendValue to append each value.
func (s *Sample[V]) AppendBinary(b []byte, appendValue func([]byte, V) []byte) []byte {
	b = append(b, sampleVersion)
	b = codec.AppendUvarints(b, uint64(s.k))
	b = codec.AppendWords(b, s.threshold)
	b = codec.AppendUvarints(b, uint64(len(s.items)))
	for _, i := range s.items {
		b = codec.AppendWords(b, i.Key)
		b = appendValue(b, i.Value)
	}
	return b
}

// DecodeSample decodes the output of AppendBinary and returns the bytes after it. decodeValue decodes a value and
// returns the bytes after it. Errors wrap [codec.ErrCorrupt].
func DecodeSample[V any](b []byte, decodeValue func([]byte) (V, []byte, error)) (Sample[V], []byte, error) {
	d := codec.NewReader(b)
	d.Version(sampleVersion)
	s := Sample[V]{k: int(d.Below(maxSample + 1)), threshold: d.Word()}
	for range d.Below(uint64(s.k) + 1) {
		key := d.Word()
		v := codec.Read(d, decodeValue)
		if d.Bad() || !s.admits(key) || len(s.items) > 0 && key <= s.items[len(s.items)-1].Key {
			d.Fail()
			break
		}
		s.items = append(s.items, Item[V]{key, v})
	}
	if d.Bad() {
		return Sample[V]{}, nil, fmt.Errorf("%w: sample", codec.ErrCorrupt)
	}
	return s, d.Rest(), nil
}

// Stratified is a sample of examples for people: the slowest requests, the fastest, and several around the median. It
// is not uniform, so it does not support inference. The slowest and the fastest are exact; the requests around the
// median come from a uniform sample of ten times their number. Like a [Sample], it depends only on the set of requests
// added. The zero value keeps nothing; use [NewStratified].
type Stratified[V any] struct {
	m       int
	slow    []ranked[V] // at most m, slowest first
	fast    []ranked[V] // at most m, fastest first
	uniform Sample[ranked[V]]
}

// ranked is a value with its rank: the duration, then the key, so that the order of arrival does not matter.
type ranked[V any] struct {
	nanos int64
	key   uint64
	value V
}

func bySlow[V any](a, b ranked[V]) int {
	return cmp.Or(cmp.Compare(b.nanos, a.nanos), cmp.Compare(a.key, b.key))
}

func byFast[V any](a, b ranked[V]) int {
	return cmp.Or(cmp.Compare(a.nanos, b.nanos), cmp.Compare(a.key, b.key))
}

// NewStratified returns an empty sample of m requests per stratum.
func NewStratified[V any](m int) Stratified[V] {
	return Stratified[V]{m: m, uniform: NewSample[ranked[V]](10 * m)}
}

// Add adds a request that took ns, and reports whether any stratum keeps it for now.
func (s *Stratified[V]) Add(key uint64, ns int64, v V) bool {
	r := ranked[V]{ns, key, v}
	slow := keep(&s.slow, s.m, r, bySlow[V])
	fast := keep(&s.fast, s.m, r, byFast[V])
	return s.uniform.Add(key, r) || slow || fast
}

// keep inserts r into list if it is among the first m by order. It reports whether it inserted r.
func keep[V any](list *[]ranked[V], m int, r ranked[V], order func(a, b ranked[V]) int) bool {
	at, found := slices.BinarySearchFunc(*list, r, order)
	if found || at >= m {
		return false
	}
	*list = slices.Insert(*list, at, r)
	if len(*list) > m {
		(*list)[m] = ranked[V]{}
		*list = (*list)[:m]
	}
	return true
}

// Slowest returns the slowest requests, slowest first.
func (s *Stratified[V]) Slowest() []Item[V] { return items(s.slow) }

// Fastest returns the fastest requests, fastest first.
func (s *Stratified[V]) Fastest() []Item[V] { return items(s.fast) }

// Median returns requests around the median, fastest first.
func (s *Stratified[V]) Median() []Item[V] {
	all := s.sorted()
	if extra := len(all) - s.m; extra > 0 {
		all = all[extra/2:][:s.m]
	}
	return items(all)
}

// Typical returns the requests closest to the median of the uniform sample, among those that match accepts, fastest
// first. It returns at most as many as a stratum holds.
func (s *Stratified[V]) Typical(match func(key uint64, v V) bool) []Item[V] {
	all := s.sorted()
	var near []ranked[V]
	for low, high := (len(all)-1)/2, (len(all)-1)/2+1; len(near) < s.m && (low >= 0 || high < len(all)); {
		for _, i := range []int{low, high} {
			if 0 <= i && i < len(all) && len(near) < s.m && match(all[i].key, all[i].value) {
				near = append(near, all[i])
			}
		}
		low, high = low-1, high+1
	}
	sorting.Slice(near, byFast)
	return items(near)
}

// sorted returns the uniform sample, fastest first.
func (s *Stratified[V]) sorted() []ranked[V] {
	all := make([]ranked[V], 0, s.uniform.Len())
	for _, r := range s.uniform.All() {
		all = append(all, r)
	}
	sorting.Slice(all, byFast)
	return all
}

func items[V any](list []ranked[V]) []Item[V] {
	out := make([]Item[V], len(list))
	for i, r := range list {
		out[i] = Item[V]{r.key, r.value}
	}
	return out
}
