package stats

import (
	"fmt"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// MixReference describes the healthy mix of groups within a request type, as [Mix] requires it. It has two upper
// confidence limits per group: on the proportion of the group, and on the proportion of all other groups. The caller
// numbers the groups; the last number should stand for all other groups, so that new groups are detected. A
// MixReference is immutable.
type MixReference struct {
	rho        float64
	more, less []float64 // limits of P(group) and of P(not group)
}

// NewMixReference learns a reference from requests, the number of requests of each group over all epochs. A group
// without requests has a limit, too, because it may be absent by chance.
func NewMixReference(requests []uint64, epochs int, o TestOptions) MixReference {
	var n uint64
	for _, k := range requests {
		n += k
	}
	r := MixReference{rho: o.Rho, more: make([]float64, len(requests)), less: make([]float64, len(requests))}
	for i, k := range requests {
		r.more[i] = raiseOdds(o.upper(k, n, epochs), o.MixMargin)
		r.less[i] = raiseOdds(o.upper(n-k, n, epochs), o.MixMargin)
	}
	return r
}

// raiseOdds returns the probability whose odds are ratio times the odds of p.
func raiseOdds(p, ratio float64) float64 { return ratio * p / (1 - p + ratio*p) }

// Mix is the evidence that the mix of groups within a request type has shifted: that a group became more or less
// frequent. The zero value is the state before the first epoch.
type Mix struct{ more, less []Evidence }

// Step adds an epoch with the number of requests of each group of r. If the number of groups differs from the previous
// epoch, the evidence is reset first. Step reports whether there were requests, so that the evidence changed. It panics
// unless requests has one element per group of r.
func (m *Mix) Step(r *MixReference, requests []uint64) (changed bool) {
	if len(requests) != len(r.more) {
		panic(fmt.Sprintf("stats: counts of %d groups for a reference of %d", len(requests), len(r.more)))
	}
	var n uint64
	for _, k := range requests {
		n += k
	}
	if n == 0 {
		return false
	}
	if len(m.more) != len(requests) {
		m.more, m.less = make([]Evidence, len(requests)), make([]Evidence, len(requests))
	}
	for i, k := range requests {
		m.more[i].Step(r.more[i], k, n, r.rho)
		m.less[i].Step(r.less[i], n-k, n, r.rho)
	}
	return true
}

// Shifted returns the e-value against the hypothesis that the mix shifted by at most the margin: the average over
// groups and directions. The more groups there are, the more evidence a given value requires. The value is 0 before the
// first epoch.
func (m Mix) Shifted() float64 {
	if len(m.more) == 0 {
		return 0
	}
	return (average(m.more) + average(m.less)) / 2
}

// maxGroups is the exclusive upper limit on the number of groups when decoding.
const maxGroups = 1 << 12

// AppendBinary appends m to b, in 48 bytes per group plus at most 3.
func (m Mix) AppendBinary(b []byte) []byte {
	b = append(b, mixVersion)
	b = codec.AppendUvarints(b, uint64(len(m.more)))
	for i := range m.more {
		b = m.more[i].appendTo(b)
		b = m.less[i].appendTo(b)
	}
	return b
}

// DecodeMix decodes the output of AppendBinary and returns the bytes after it. Errors wrap [codec.ErrCorrupt].
func DecodeMix(b []byte) (Mix, []byte, error) {
	d := codec.NewReader(b)
	d.Version(mixVersion)
	var m Mix
	for range d.Below(maxGroups) {
		m.more, m.less = append(m.more, readEvidence(d)), append(m.less, readEvidence(d))
		if d.Bad() {
			break
		}
	}
	if d.Bad() {
		return Mix{}, nil, fmt.Errorf("%w: mix", codec.ErrCorrupt)
	}
	return m, d.Rest(), nil
}

const mixReferenceVersion = 1

// Groups returns the number of groups of the mix.
func (r *MixReference) Groups() int { return len(r.more) }

// AppendBinary appends r to b.
func (r MixReference) AppendBinary(b []byte) []byte {
	b = append(b, mixReferenceVersion)
	b = codec.AppendFloats(b, r.rho)
	b = codec.AppendUvarints(b, uint64(len(r.more)))
	for i := range r.more {
		b = codec.AppendFloats(b, r.more[i])
		b = codec.AppendFloats(b, r.less[i])
	}
	return b
}

// DecodeMixReference decodes the output of AppendBinary and returns the bytes after it. Errors wrap [codec.ErrCorrupt].
func DecodeMixReference(b []byte) (MixReference, []byte, error) {
	d := codec.NewReader(b)
	d.Version(mixReferenceVersion)
	r := MixReference{rho: readFraction(d)}
	for range d.Below(maxGroups) {
		r.more, r.less = append(r.more, readFraction(d)), append(r.less, readFraction(d))
		if d.Bad() {
			break
		}
	}
	if d.Bad() {
		return MixReference{}, nil, fmt.Errorf("%w: mix reference", codec.ErrCorrupt)
	}
	return r, d.Rest(), nil
}
