package engine

import (
	"fmt"
	"maps"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/codec/plain"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// coreVersion is the first byte of an encoded [Core].
const coreVersion = 1

// savedCore is the part of a Core's state that is encoded by reflection. Its field names are part of the format.
type savedCore struct {
	Settings      Settings
	Learned       bool
	Began, Aged   trace.Nanos
	Seen, Dropped uint64
	Epochs        []savedMark
	Heard         savedHeard
	Plans         []savedPlan
	Problems      []detect.Problem
	Refinements   []savedRefinements // ascending by group
	Searches      []savedSearch      // in the order their incidents opened
	Samples       []savedSample      // ascending by group
	Loads         []savedPart        // ascending by request type
	Found         []savedFound       // ascending by problem
	Series        savedSeries
	Trees         []savedPart // ascending by request type
	Spans         []byte
	Sites         []byte
	Incidents     incident.SavedTracker
	Objectives    incident.ObjectivesState
	Affected      []affectedState
	Versions      []VersionSeen
	Annotations   []Annotation `cbor:"Deploys"` // oldest first; the key is a former name
}

// savedPart is the encoding of one element, such as a tree, with its ID.
type savedPart struct {
	ID   analysis.Hash
	Data []byte
}

// AppendState appends to b the state that a Core needs to continue after a restart. Cores with equal input append equal
// bytes. The state includes only the table entries that it mentions.
func (c *Core) AppendState(b []byte) []byte { return append(b, c.snapshot(c.table).Encode()...) }

// Snapshot is the state of a core at one point in time.
type Snapshot struct {
	bytes []byte // room for the table, followed by the encoded state without the table
	room  int
	table *trace.Table
}

// Snapshot returns the current state of c. Another goroutine may encode the result while c is in use. Call
// [Core.Release] once it is encoded.
func (c *Core) Snapshot() *Snapshot { return c.snapshot(c.table.Freeze()) }

func (c *Core) snapshot(table *trace.Table) *Snapshot {
	room := table.EncodedSize() + codec.SectionSize + 1 // so that we needn't copy the state, which may be large
	size := c.encoded + c.encoded/8 + c.learning.added
	c.learning.added = 0
	return &Snapshot{c.appendStatistics(make([]byte, room, room+size)), room, table}
}

// Release releases the last snapshot, which must not be used any more.
func (c *Core) Release() { c.table.Thaw() }

// Encode returns the bytes that [Core.AppendState] would have appended. The result shares memory with s.
func (s *Snapshot) Encode() []byte {
	names := s.table.AppendMentioned(nil, s.bytes[s.room:])
	head := codec.AppendSection([]byte{coreVersion}, func(b []byte) []byte { return append(b, names...) })
	b := s.bytes[s.room-len(head):]
	copy(b, head)
	return b
}

// appendStatistics appends the state without the table.
func (c *Core) appendStatistics(b []byte) []byte {
	before := len(b)
	b = codec.AppendSection(b, c.types.AppendBinary)
	b = codec.AppendSection(b, c.detector.AppendBinary)
	b = codec.AppendSection(b, func(b []byte) []byte { return AppendSearchState(b, &c.searches.state) })
	b = codec.AppendSection(b, c.learning.appendRequests)
	b = codec.AppendSection(b, func(b []byte) []byte { return plain.Append(b, c.saved()) })
	c.encoded = len(b) - before
	return b
}

// section is a part of a core that saves and restores its own fields of savedCore.
type section interface {
	save(s *savedCore)
	// restore is the inverse of save. Errors wrap [codec.ErrCorrupt].
	restore(s *savedCore) error
}

func (c *Core) sections() []section {
	return []section{
		&c.learning, &c.log, &c.versions, c.annotations, c.offers, c.plans, &c.calls, c.incidents, c.problems,
		c.searches, &c.series, c.trees,
	}
}

func (c *Core) saved() *savedCore {
	s := &savedCore{Settings: c.options.Settings(), Spans: c.spans.AppendBinary(nil)}
	for _, part := range c.sections() {
		part.save(s)
	}
	return s
}

// hashes returns the keys of m, ascending.
func hashes[V any](m map[analysis.Hash]V) []analysis.Hash {
	return sorting.Sorted(maps.Keys(m), analysis.Hash.Compare)
}

// Restore replaces the state of c, which must be new, with a state encoded by [Core.AppendState]. c keeps its options,
// except that its [Settings] come from the encoded core. Errors wrap [codec.ErrCorrupt] or are an
// [UnknownStrategyError]; c is unusable after an error. Restore doesn't retain b.
func (c *Core) Restore(b []byte) error {
	r := codec.NewReader(b)
	r.Version(coreVersion)
	var parts [6][]byte
	for i := range parts {
		parts[i] = r.Section()
	}
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: sections of the core", err)
	}
	table, _, err := trace.DecodeTable(parts[0], 0) // c.table may have a lower limit than the table that was saved
	if err != nil {
		return err
	}
	c.table.Merge(table)
	if c.searches.state, err = DecodeSearchState(parts[3]); err != nil {
		return err
	}
	s, err := decodeSaved(parts[5])
	if err != nil {
		return err
	}
	if err := c.options.CheckStrategy(s.Settings.Strategy); err != nil {
		return err
	}
	if c.types, _, err = group.DecodeRequestTypes(parts[1], c.types.Rules); err != nil {
		return err
	}
	c.types.Limit = c.options.Groups.Groups
	decode := func(b []byte) (*detect.Detector, error) {
		d, _, err := detect.Decode(b, c.types, c.table, c.options.Groups)
		return d, err
	}
	if c.detector, err = decode(parts[2]); err != nil {
		return err
	}
	if c.spans, _, err = observation.DecodeRecentSpans(s.Spans, c.options.Operations); err != nil {
		return err
	}
	for _, part := range c.sections() {
		if err := part.restore(s); err != nil {
			return err
		}
	}
	if err := c.learning.restoreRequests(parts[4], decode); err != nil {
		return err
	}
	c.offered()
	c.encoded = len(b)
	c.set(&s.Settings)
	return nil
}

func decodeSaved(b []byte) (*savedCore, error) {
	s := &savedCore{}
	if err := plain.Decode(b, s); err != nil {
		return nil, err
	}
	if !s.valid() {
		return nil, fmt.Errorf("%w: core with a value out of range", codec.ErrCorrupt)
	}
	return s, nil
}

// valid reports whether the counts and enumerated values of s are in range and its measurements are finite.
func (s *savedCore) valid() bool {
	for i := range s.Problems {
		if p := &s.Problems[i]; p.Kind > detect.KindShifted || p.Onset > detect.Chronic || p.Level > group.LevelGroup {
			return false
		}
	}
	for i := range s.Heard.Services {
		for k := range s.Heard.Services[i].Tracepoints {
			if t := &s.Heard.Services[i].Tracepoints[k]; t.Layer > cct.Kernel || t.Kind > cct.ProbePoint {
				return false
			}
		}
	}
	for i := range s.Heard.Samples {
		x := &s.Heard.Samples[i]
		ok := finite(x.Requests, x.Time)
		for _, p := range x.Points {
			ok = ok && finite(p.Total, p.Own)
		}
		if !ok {
			return false
		}
	}
	for _, m := range s.Epochs {
		if m.Seen > s.Seen {
			return false
		}
	}
	for i := range s.Objectives.All {
		if !s.Objectives.All[i].Valid() {
			return false
		}
	}
	for i := range s.Annotations {
		if !s.Annotations[i].valid() {
			return false
		}
	}
	return len(s.Plans) > 0 && s.Settings.valid() &&
		finite(s.Heard.Measured.Hits, s.Heard.Measured.Bytes, s.Heard.Measured.CPU)
}
