package engine

import (
	"fmt"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/codec/plain"
	"github.com/sibyl-trace/sibyl/search"
)

// stateVersion is the first byte of an encoded [search.State].
const stateVersion = 1

// AppendSearchState appends the encoding of s to b. It is in this package because package search doesn't depend on
// encodings.
func AppendSearchState(b []byte, s *search.State) []byte {
	return plain.Append(append(b, stateVersion), s)
}

// DecodeSearchState decodes a state encoded by AppendSearchState; b must contain nothing else. Errors wrap
// [codec.ErrCorrupt]. DecodeSearchState doesn't retain b.
func DecodeSearchState(b []byte) (s search.State, err error) {
	r := codec.NewReader(b)
	r.Version(stateVersion)
	if err = r.Err(); err == nil {
		err = plain.Decode(r.Rest(), &s)
	}
	if err != nil {
		return search.State{}, fmt.Errorf("state of the search: %w", err)
	}
	if !validState(&s) {
		return search.State{}, fmt.Errorf("%w: state of the search with a value out of range", codec.ErrCorrupt)
	}
	return s, nil
}

// validState reports whether the indices and enumerated values of s are in range and its numbers are finite.
func validState(s *search.State) bool {
	for i := range s.Plan.Arms {
		if !finite(s.Plan.Arms[i].Share) {
			return false
		}
	}
	for i := range s.Plan.Leases {
		if arm := s.Plan.Leases[i].Arm; arm < 0 || int(arm) >= len(s.Plan.Arms) {
			return false
		}
	}
	for i := range s.Investigations {
		if !validInvestigation(&s.Investigations[i]) {
			return false
		}
	}
	for i := range s.Overrides {
		if s.Overrides[i].Kind > search.Forbid {
			return false
		}
	}
	for i := range s.Steered {
		if !s.Steered[i].Subject.Valid() {
			return false
		}
	}
	return finite(s.Overrun.Bytes, s.Overrun.CPU)
}

func validInvestigation(v *search.Investigation) bool {
	for i := range v.Requested {
		if !finite(v.Requested[i].Value) {
			return false
		}
	}
	for i := range v.Evidence {
		if e := &v.Evidence[i]; !finite(e.Share, e.Low, e.High, e.Mean) {
			return false
		}
	}
	for i := range v.Suspects {
		if x := &v.Suspects[i]; !finite(x.Share, x.Low, x.High, x.Inclusive) {
			return false
		}
	}
	return v.Subject.Valid() && v.Status <= search.Gone && v.Epochs >= 0 && finite(v.Score)
}
