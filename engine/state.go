package engine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine/spool"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/codec/plain"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// coreVersion is the first byte of an encoded [Core].
const coreVersion = 1

// savedCore is the small and plain part of a Core. The names of its fields are part of the format.
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
	Searches      []savedSearch      // in the order in which their incidents were opened
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
	Deploys       []Deploy
}

// savedHeard is the state that feedback changes; each list is ascending.
type savedHeard struct {
	Services []savedService
	Costs    []savedCost
	Broken   []savedTime
	Gone     []savedTime
	Measured search.Measured
	At       trace.Nanos
	Said     []string
}

type savedService struct {
	Service     trace.Symbol
	Tracepoints []cct.Tracepoint
}

type savedCost struct {
	ID   trace.Symbol
	Cost measuredCost
}

type savedTime struct {
	ID trace.Symbol
	At trace.Nanos
}

type savedMark struct {
	End  trace.Nanos
	Seen uint64
}

type savedPlan struct {
	Version int64
	Since   trace.Nanos `cbor:",omitempty"`
	Arms    []savedArm
}

type savedArm struct {
	Name       trace.Symbol
	On         []trace.Symbol
	Set        uint64
	Everything bool
	Share      float64        `cbor:",omitempty"`
	Probes     []trace.Symbol `cbor:",omitempty"`
}

type savedRefinements struct {
	Group analysis.Hash
	Sets  []savedSet // ascending
	Bare  []byte
	Pairs []byte // empty: the strategy uses none
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

type savedSample struct {
	Group       analysis.Hash
	RequestType analysis.Hash
	Sample      []byte
}

type savedFound struct {
	Problem  analysis.Hash
	Present  bool // it refers to the present sample of the group
	Group    analysis.Hash
	Seen     uint64
	Looks    int
	Findings explain.Findings
}

// savedPart is the encoding of one element, such as a tree.
type savedPart struct {
	ID   analysis.Hash
	Data []byte
}

// AppendState appends to b the state with which a Core continues after a restart. Cores with the same input give the
// same bytes. Of the table it has the entries that the state mentions.
func (c *Core) AppendState(b []byte) []byte { return append(b, c.snapshot(c.table).Encode()...) }

// Snapshot is the state of a core at one time.
type Snapshot struct {
	bytes []byte // room for the table, then the encoded state without it
	room  int
	table *trace.Table
}

// Snapshot returns the present state of c. Another goroutine may encode it while c is used and changed, until
// [Core.Release].
func (c *Core) Snapshot() *Snapshot { return c.snapshot(c.table.Freeze()) }

func (c *Core) snapshot(table *trace.Table) *Snapshot {
	room := table.EncodedSize() + codec.SectionSize + 1 // so that the state, which may be large, need not be copied
	return &Snapshot{c.appendStatistics(make([]byte, room, room+c.encoded+c.encoded/8)), room, table}
}

// Release ends the use of the last snapshot.
func (c *Core) Release() { c.table.Thaw() }

// Encode returns what [Core.AppendState] appends. It shares memory with s.
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
	b = codec.AppendSection(b, func(b []byte) []byte { return AppendSearchState(b, &c.state) })
	b = codec.AppendSection(b, c.appendEarly)
	b = codec.AppendSection(b, func(b []byte) []byte { return plain.Append(b, c.saved()) })
	c.encoded = len(b) - before
	return b
}

// appendEarly appends the observations of the learning period with their provisional groups; nothing after that period.
func (c *Core) appendEarly(b []byte) []byte {
	if c.learning.over {
		return b
	}
	b = codec.AppendSection(b, c.learning.preview.AppendBinary)
	return c.learning.requests.AppendBinary(b)
}

func (c *Core) saved() *savedCore {
	c.mergeTally()
	s := &savedCore{
		Settings: c.options.Settings(),
		Learned:  c.learning.over, Began: c.learning.began, Aged: c.trees.aged, Seen: c.learning.seen, Dropped: c.learning.dropped,
		Heard: c.offers.saved(c.log), Problems: c.problems, Spans: c.spans.AppendBinary(nil),
		Sites: c.sites.AppendBinary(nil), Incidents: c.cases.tracker.Save(), Affected: c.cases.savedAffected(),
		Objectives: c.objectives.State(),
		Versions:   c.versions.known, Deploys: c.versions.deploys,
	}
	for _, m := range c.learning.epochs {
		s.Epochs = append(s.Epochs, savedMark{m.end, m.seen})
	}
	for _, p := range c.plans.all {
		saved := savedPlan{Version: p.version, Since: p.since}
		for _, a := range p.arms {
			saved.Arms = append(saved.Arms, savedArm{a.name, a.on, a.set, a.everything, a.share, a.probes})
		}
		s.Plans = append(s.Plans, saved)
	}
	for _, id := range hashes(c.refinements) {
		s.Refinements = append(s.Refinements, c.refinements[id].saved(id))
	}
	for _, x := range c.searches.list {
		s.Searches = append(s.Searches, x.saved())
	}
	c.causes.save(s)
	s.Series = c.series.saved()
	for _, id := range hashes(c.trees.byType) {
		s.Trees = append(s.Trees, savedPart{id, c.trees.byType[id].builder.AppendBinary(nil)})
	}
	return s
}

func (f *offers) saved(log actionLog) savedHeard {
	s := savedHeard{Measured: f.measured, At: f.at, Said: log, Broken: savedTimes(f.unavailable), Gone: savedTimes(f.removed)}
	for _, service := range slices.Sorted(maps.Keys(f.services)) {
		s.Services = append(s.Services, savedService{service, f.services[service]})
	}
	for _, id := range slices.Sorted(maps.Keys(f.costs)) {
		s.Costs = append(s.Costs, savedCost{id, f.costs[id]})
	}
	return s
}

func savedTimes(m map[trace.Symbol]trace.Nanos) []savedTime {
	var list []savedTime
	for _, id := range slices.Sorted(maps.Keys(m)) {
		list = append(list, savedTime{id, m[id]})
	}
	return list
}

func (c *Core) restoreFeedback(s *savedHeard) {
	h := &c.offers
	h.measured, h.at, c.log = s.Measured, s.At, s.Said
	for _, x := range s.Services {
		h.services[x.Service] = x.Tracepoints
	}
	for _, x := range s.Costs {
		h.costs[x.ID] = x.Cost
	}
	for _, x := range s.Broken {
		h.unavailable[x.ID] = x.At
	}
	for _, x := range s.Gone {
		h.removed[x.ID] = x.At
	}
	h.merge()
	c.offered()
}

func (c *causes) save(s *savedCore) {
	for _, id := range hashes(c.samples) {
		x := c.samples[id]
		s.Samples = append(s.Samples, savedSample{Group: id, RequestType: x.requestType, Sample: x.AppendBinary(nil)})
	}
	for _, id := range hashes(c.loads) {
		s.Loads = append(s.Loads, savedPart{id, c.loads[id].AppendBinary(nil)})
	}
	groups := make(map[*groupSample]analysis.Hash, len(c.samples))
	for id, sample := range c.samples {
		groups[sample] = id
	}
	for _, id := range hashes(c.found) {
		f := c.found[id]
		group, present := groups[f.in]
		s.Found = append(s.Found, savedFound{Problem: id, Present: present, Group: group, Seen: f.seen, Looks: f.looks, Findings: f.findings})
	}
}

// hashes returns the keys of m, ascending.
func hashes[V any](m map[analysis.Hash]V) []analysis.Hash {
	return slices.SortedFunc(maps.Keys(m), analysis.Hash.Compare)
}

// Restore replaces the state of c, which must be new, by the one that [Core.AppendState] encoded. The options of c
// apply, except for the [Settings], which are those of the encoded core. An error wraps [codec.ErrCorrupt] or is an
// [UnknownStrategyError]; c is unusable after it. Restore keeps nothing of b.
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
	table, _, err := trace.DecodeTable(parts[0], c.table.Limit)
	if err != nil {
		return err
	}
	c.table.Merge(table)
	if c.state, err = DecodeSearchState(parts[3]); err != nil {
		return err
	}
	s, err := decodeSaved(parts[5])
	if err != nil {
		return err
	}
	if err := c.options.CheckStrategy(s.Settings.Strategy); err != nil {
		return err
	}
	c.restorePlans(s)
	if err := c.restoreGroups(parts[1], parts[2], parts[4], s); err != nil {
		return err
	}
	c.Apply(&Change{Settings: &s.Settings})
	return nil
}

// restorePlans restores the part of the state that does not refer to groups.
func (c *Core) restorePlans(s *savedCore) {
	c.restoreFeedback(&s.Heard)
	c.versions.restore(s.Versions, s.Deploys)
	c.plans.all = nil
	for _, p := range s.Plans {
		restored := plan{version: p.Version, since: p.Since}
		for _, a := range p.Arms {
			restored.arms = append(restored.arms, arm{a.Name, a.On, a.Set, a.Everything, a.Share, a.Probes})
		}
		restored.share()
		c.plans.all = append(c.plans.all, restored)
	}
}

// restoreGroups restores all that refers to request types and groups.
func (c *Core) restoreGroups(types, detector, early []byte, s *savedCore) (err error) {
	if c.types, _, err = group.DecodeRequestTypes(types, c.types.Rules); err != nil {
		return err
	}
	if c.detector, _, err = detect.Decode(detector, c.types, c.table, c.options.Groups); err != nil {
		return err
	}
	if err := c.restoreEarly(early, s.Learned); err != nil {
		return err
	}
	return c.restore(s)
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

// valid reports whether counts and enumerations are in range.
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
	return len(s.Plans) > 0 && s.Settings.valid() &&
		finite(s.Heard.Measured.Hits, s.Heard.Measured.Bytes, s.Heard.Measured.CPU)
}

func (c *Core) restoreEarly(b []byte, learned bool) error {
	if learned {
		c.learning.over, c.learning.requests, c.learning.preview = true, nil, nil
		return nil
	}
	r := codec.NewReader(b)
	preview := r.Section()
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: observations of the learning period", err)
	}
	var err error
	if c.learning.preview, _, err = detect.Decode(preview, c.types, c.table, c.options.Groups); err != nil {
		return err
	}
	c.learning.requests, err = spool.Decode(r.Rest())
	return err
}

func (c *Core) restore(s *savedCore) error {
	c.learning.began, c.trees.aged, c.learning.seen, c.learning.dropped = s.Began, s.Aged, s.Seen, s.Dropped
	c.problems = s.Problems
	var err error
	if c.spans, _, err = observation.DecodeRecentSpans(s.Spans); err != nil {
		return err
	}
	sites, err := history.DecodeSites(s.Sites, c.table)
	if err != nil {
		return err
	}
	c.sites = compare.NewComparer(sites)
	c.cases.tracker = incident.Restore(s.Incidents)
	if err := c.cases.restoreAffected(s.Affected); err != nil {
		return err
	}
	c.objectives.Restore(&s.Objectives)
	for _, m := range s.Epochs {
		c.learning.epochs = append(c.learning.epochs, epochEnd{m.End, m.Seen})
	}
	for i := range s.Refinements {
		r, err := restoreRefinements(&s.Refinements[i])
		if err != nil {
			return err
		}
		c.refinements[s.Refinements[i].Group] = r
	}
	if err := c.searches.restore(s.Searches); err != nil {
		return err
	}
	if err := c.causes.restore(s); err != nil {
		return err
	}
	if err := c.series.restore(&s.Series); err != nil {
		return err
	}
	for _, t := range s.Trees {
		b, err := cct.Decode(t.Data)
		if err != nil {
			return err
		}
		c.trees.byType[t.ID] = &tree{builder: *b, grown: true}
	}
	return nil
}

func restoreRefinements(s *savedRefinements) (r *refinements, err error) {
	r = &refinements{bySet: make(map[uint64]*detect.Refinement)}
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

func (c *causes) restore(s *savedCore) error {
	for i := range s.Samples {
		x := &s.Samples[i]
		sample, _, err := explain.DecodeSample(x.Sample)
		if err != nil {
			return err
		}
		c.samples[x.Group] = &groupSample{requestType: x.RequestType, Sample: sample}
	}
	for _, x := range s.Loads {
		l, _, err := explain.DecodeRecentLoad(x.Data)
		if err != nil {
			return err
		}
		c.loads[x.ID] = l
	}
	c.keepLoads()
	for i := range s.Found {
		x := &s.Found[i]
		f := &found{seen: x.Seen, looks: x.Looks, findings: x.Findings}
		if x.Present {
			f.in = c.samples[x.Group]
		}
		c.found[x.Problem] = f
	}
	return nil
}
