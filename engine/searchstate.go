package engine

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/search"
)

const stateVersion = 1

// AppendSearchState appends s to b: what a search takes to go on after a restart. States are small, so that JSON will do; package search
// itself encodes nothing.
func AppendSearchState(b []byte, s *search.State) []byte {
	data, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("engine: a state that is no plain value: %v", err))
	}
	return append(append(b, stateVersion), data...)
}

// DecodeSearchState returns the state that AppendSearchState wrote, which takes all of b. An error wraps [codec.ErrCorrupt]. It keeps nothing of b.
func DecodeSearchState(b []byte) (search.State, error) {
	if len(b) == 0 || b[0] != stateVersion {
		return search.State{}, fmt.Errorf("%w: unknown version", codec.ErrCorrupt)
	}
	d := json.NewDecoder(bytes.NewReader(b[1:]))
	d.DisallowUnknownFields()
	var s search.State
	if err := d.Decode(&s); err != nil {
		return search.State{}, fmt.Errorf("%w: %w", codec.ErrCorrupt, err)
	}
	if d.More() || !possible(&s) {
		return search.State{}, fmt.Errorf("%w: what it says is impossible", codec.ErrCorrupt)
	}
	return s, nil
}

// possible reports whether what indexes tables and names does so within bounds.
func possible(s *search.State) bool {
	for i := range s.Plan.Leases {
		if arm := s.Plan.Leases[i].Arm; arm < 0 || int(arm) >= len(s.Plan.Arms) {
			return false
		}
	}
	for i := range s.Investigations {
		if v := &s.Investigations[i]; v.Status > search.Gone || v.Epochs < 0 {
			return false
		}
	}
	for i := range s.Overrides {
		if s.Overrides[i].Kind > search.Forbid {
			return false
		}
	}
	return true
}
