package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
)

// refinements holds the statistics of one problem by set of enabled tracepoints, identified by the hash of the set.
type refinements struct {
	bySet map[uint64]*detect.Refinement
	bare  stats.Moments // durations of requests with no tracepoint on, while the plan had arms
	pairs *detect.Pairs // nil if the strategy doesn't use pairs
}

func newRefinements() *refinements {
	return &refinements{bySet: make(map[uint64]*detect.Refinement)}
}

// add adds o, a request in arm a, to r.
func (r *refinements) add(o *observation.Observation, a *arm, of *plans, coarse bool) {
	if a.set == 0 {
		if o.Plan > 0 && len(o.Behind) == 0 && len(of.current()) > 0 {
			r.bare.Add(o.Duration.Nanoseconds())
		}
		return
	}
	refinement := r.bySet[a.set]
	if refinement == nil {
		refinement = detect.NewRefinement(a.name, a.on)
		r.bySet[a.set] = refinement
	}
	refinement.Observe(o, coarse)
}

// attach sets p.Refined to the shares that the tracepoints of the arms in present have measured, and drops the
// statistics of all other arms.
func (r *refinements) attach(p *detect.Problem, present []arm) {
	present = append(present, r.partsOf(present)...)
	for set := range r.bySet {
		if !slices.ContainsFunc(present, func(a arm) bool { return a.set == set }) {
			delete(r.bySet, set)
		}
	}
	p.Refined = r.shares(present)
	p.Attribute()
}

// partsOf returns the parts of arms that r has statistics for, ascending by set; see [arm.part].
func (r *refinements) partsOf(arms []arm) (parts []arm) {
	for _, set := range slices.Sorted(maps.Keys(r.bySet)) {
		name, on := r.bySet[set].Arm()
		for i := range arms {
			if x := arms[i].part(on); x.name == name {
				parts = append(parts, *x)
				break
			}
		}
	}
	return parts
}

// shares returns the shares that the tracepoints of arms measured.
func (r *refinements) shares(arms []arm) []detect.RefinedShare {
	var shares []detect.RefinedShare
	seen := make(map[uint64]bool) // arms with equal sets share their statistics
	for i := range arms {
		if refinement := r.bySet[arms[i].set]; refinement != nil && !seen[arms[i].set] {
			seen[arms[i].set] = true
			shares = append(shares, refinement.Shares()...)
		}
	}
	sorting.SliceStable(shares, func(a, b detect.RefinedShare) int {
		return cmp.Or(cmp.Compare(a.Within, b.Within), cmp.Compare(a.Context, b.Context), cmp.Compare(a.Arm, b.Arm),
			cmp.Compare(a.Tracepoint, b.Tracepoint))
	})
	return shares
}

// armTimes returns the request durations of subject, first without tracepoints and then by arm.
func (r *refinements) armTimes(subject search.Subject, arms []arm) []search.ArmTimes {
	times := []search.ArmTimes{bareTimes(subject, r.bare)}
	seen := make(map[uint64]bool)
	for k := range arms {
		a := &arms[k]
		if x := r.bySet[a.set]; x != nil && !seen[a.set] {
			seen[a.set] = true
			n, mean, variance := x.Durations()
			times = append(times, search.ArmTimes{
				Subject:  subject,
				Arm:      a.name,
				On:       len(a.on),
				N:        n,
				Mean:     mean,
				Variance: variance,
			})
		}
	}
	return times
}

func bareTimes(subject search.Subject, m stats.Moments) search.ArmTimes {
	return search.ArmTimes{Subject: subject, N: m.N, Mean: m.Mean(), Variance: m.Variance()}
}

// savedRefinements is the saved form of refinements.
type savedRefinements struct {
	Group analysis.Hash
	Sets  []savedSet // ascending
	Bare  []byte
	Pairs []byte // empty if the strategy doesn't use pairs
}

func (r *refinements) saved(group analysis.Hash) savedRefinements {
	saved := savedRefinements{Group: group, Bare: r.bare.AppendBinary(nil)}
	if r.pairs != nil {
		saved.Pairs = r.pairs.AppendBinary(nil)
	}
	for _, set := range slices.Sorted(maps.Keys(r.bySet)) {
		saved.Sets = append(saved.Sets, savedSet{set, r.bySet[set].AppendBinary(nil)})
	}
	return saved
}

type savedSet struct {
	Set        uint64
	Refinement []byte
}

// restoreRefinements is the inverse of saved. Errors wrap [codec.ErrCorrupt].
func restoreRefinements(s *savedRefinements) (r *refinements, err error) {
	r = newRefinements()
	if r.bare, _, err = stats.DecodeMoments(s.Bare); err != nil {
		return nil, err
	}
	if len(s.Pairs) > 0 {
		if r.pairs, _, err = detect.DecodePairs(s.Pairs); err != nil {
			return nil, err
		}
	}
	for _, x := range s.Sets {
		if r.bySet[x.Set], _, err = detect.DecodeRefinement(x.Refinement); err != nil {
			return nil, err
		}
	}
	return r, nil
}
