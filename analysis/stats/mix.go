package stats

import (
	"fmt"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// MixReference is the healthy mix of groups within a request type that [Mix] tests against. For each group, numbered by
// the caller, it holds an upper confidence limit of its proportion and one of the proportion of all other groups.
// Reserve the last number for unknown groups, so that new groups are detected. A MixReference is immutable.
type MixReference struct {
	rho        float64
	more, less []float64 // limits of P(group) and of P(not group)
}

// NewMixReference learns a mix from the number of requests of each group over the given number of epochs. A group
// without requests has a limit as well, because chance alone may have kept it out.
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

// Mix accumulates evidence that the mix of groups within a request type has shifted: that some group became more, or
// less, frequent. The zero value is the state before the first epoch. The first reference sets the number of groups.
type Mix struct{ more, less []Evidence }

// Step adds one epoch with the number of requests of each group, numbered as in r. A reference with a different number
// of groups discards the evidence so far. It panics if len(requests) is not the number of groups of r.
func (m *Mix) Step(r *MixReference, requests []uint64) {
	if len(requests) != len(r.more) {
		panic(fmt.Sprintf("stats: %d groups, reference of %d", len(requests), len(r.more)))
	}
	if len(m.more) != len(requests) {
		m.more, m.less = make([]Evidence, len(requests)), make([]Evidence, len(requests))
	}
	var n uint64
	for _, k := range requests {
		n += k
	}
	for i, k := range requests {
		m.more[i].Step(r.more[i], k, n, r.rho)
		m.less[i].Step(r.less[i], n-k, n, r.rho)
	}
}

// Shifted returns the e-value against the hypothesis that no group's odds changed by more than the margin. It is the
// average over groups and directions, so that more groups require stronger evidence. It is 0 before the first epoch.
func (m Mix) Shifted() float64 {
	if len(m.more) == 0 {
		return 0
	}
	return (average(m.more) + average(m.less)) / 2
}

// Leading returns the group with the strongest evidence, its e-value, and whether the group became more frequent. The
// group is -1 before the first epoch.
func (m Mix) Leading() (group int, evalue float64, more bool) {
	group = -1
	for i := range m.more {
		if v := m.more[i].Value(); group < 0 || v > evalue {
			group, evalue, more = i, v, true
		}
		if v := m.less[i].Value(); v > evalue {
			group, evalue, more = i, v, false
		}
	}
	return group, evalue, more
}

// maxGroups bounds the number of groups that a decoder accepts.
const maxGroups = 1 << 12

// AppendBinary appends m to b: 48 bytes per group.
func (m Mix) AppendBinary(b []byte) []byte {
	b = append(b, mixVersion)
	b = codec.AppendUvarints(b, uint64(len(m.more)))
	for i := range m.more {
		b = m.more[i].appendTo(b)
		b = m.less[i].appendTo(b)
	}
	return b
}

// DecodeMix decodes the output of AppendBinary and returns the remaining bytes. An error wraps [codec.ErrCorrupt].
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

// Groups returns the number of groups.
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

// DecodeMixReference decodes the output of AppendBinary and returns the remaining bytes. An error wraps
// [codec.ErrCorrupt].
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
		return MixReference{}, nil, fmt.Errorf("%w: reference of a mix", codec.ErrCorrupt)
	}
	return r, d.Rest(), nil
}
