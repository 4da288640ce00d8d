package requests

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/onetrace"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/api/internal/sent"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// maxRead limits the number of traces read per request. Reading 500 traces of typical size takes tens of milliseconds.
const maxRead = 500

// keptTrace is a stored request with all reasons for storing it.
type keptTrace struct {
	store.Exemplar
	group  analysis.Hash
	strata []string
}

// keptTraces returns the stored requests by trace. If several requests of a trace are stored, it returns the longest.
func (a *Requests) keptTraces() (map[trace.ID]*keptTrace, error) {
	all := make(map[trace.ID]*keptTrace)
	add := func(group analysis.Hash, e *store.Exemplars) {
		for _, stratum := range []struct {
			name string
			list []store.Exemplar
		}{{"slow", e.Slow}, {"typical", e.Typical}, {"fast", e.Fast}, {"failed", e.Failed}} {
			for _, x := range stratum.list {
				k := all[x.Trace]
				if k == nil {
					k = &keptTrace{Exemplar: x, group: group}
					all[x.Trace] = k
				}
				if x.Duration > k.Duration {
					k.Exemplar, k.group = x, group
				}
				if !slices.Contains(k.strata, stratum.name) {
					k.strata = append(k.strata, stratum.name)
				}
			}
		}
	}
	err := a.store.Exemplars.Each(func(group analysis.Hash, e *store.Exemplars) error {
		add(group, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, a.store.Kept.Each(func(_ search.Subject, group analysis.Hash, e *store.Exemplars) error {
		add(group, e)
		return nil
	})
}

// traceQuery holds the conditions of a search.
type traceQuery struct {
	trace              string // prefix of the ID
	from, to           trace.Nanos
	longer, shorter    int64 // ns; shorter is 0 if unbounded
	service, operation string
	failed             *bool
	attributes         [][2]string // keys and values; an empty value matches any value
}

func newTraceQuery(p *contract.ListTracesParams) (q traceQuery, err error) {
	q = traceQuery{
		trace:     strings.ToLower(query.Value(p.Trace, "")),
		longer:    query.Value(p.LongerNs, 0),
		shorter:   query.Value(p.ShorterNs, 0),
		service:   query.Value(p.Service, ""),
		operation: query.Value(p.Operation, ""),
		failed:    p.Error,
	}
	if q.from, q.to, err = query.ParseInterval(p.From, p.To); err != nil {
		return q, err
	}
	for _, text := range query.Value(p.Attribute, nil) {
		key, value, _ := strings.Cut(text, "=")
		q.attributes = append(q.attributes, [2]string{key, value})
	}
	return q, nil
}

// selects reports whether a request meets the conditions that don't need spans.
func (q *traceQuery) selects(k *keptTrace) bool {
	return strings.HasPrefix(k.Trace.String(), q.trace) && k.Start >= q.from && (q.to == 0 || k.Start < q.to) &&
		k.Duration >= q.longer && (q.shorter == 0 || k.Duration < q.shorter)
}

// aboutSpans reports whether there are conditions on spans.
func (q *traceQuery) aboutSpans() bool {
	return q.service != "" || q.operation != "" || q.failed != nil || len(q.attributes) > 0
}

// matches reports whether a span meets the conditions on spans.
func (q *traceQuery) matches(s *contract.Span, resource []contract.Attribute) bool {
	if q.service != "" && s.Service != q.service || q.operation != "" && s.Name != q.operation ||
		q.failed != nil && s.Error != *q.failed {
		return false
	}
	for _, want := range q.attributes {
		is := func(x contract.Attribute) bool { return x.Key == want[0] && (want[1] == "" || x.Value == want[1]) }
		if !slices.ContainsFunc(s.Attributes, is) && !slices.ContainsFunc(resource, is) {
			return false
		}
	}
	return true
}

// request converts q for links to tracing backends. If q has no end, the time span ends now. If q has no start, it
// starts an hour before its end.
func (q *traceQuery) request(now time.Time) *directory.Request {
	r := &directory.Request{
		Service:    q.service,
		Operation:  q.operation,
		Start:      q.from,
		End:        q.to,
		Longer:     time.Duration(q.longer),
		Shorter:    time.Duration(q.shorter),
		Failed:     q.failed != nil && *q.failed,
		Attributes: q.attributes,
	}
	if r.End == 0 {
		r.End = trace.Nanos(now.UnixNano())
	}
	if r.Start == 0 {
		r.Start = r.End.Add(-time.Hour)
	}
	return r
}

// ListTraces implements contract.StrictServerInterface.
func (a *Requests) ListTraces(
	ctx context.Context, r contract.ListTracesRequestObject,
) (contract.ListTracesResponseObject, error) {
	q, err := newTraceQuery(&r.Params)
	if err != nil {
		return nil, err
	}
	s, err := a.reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := a.keptTraces()
	if err != nil {
		return nil, err
	}
	sort := query.Value(r.Params.Sort, contract.ListTracesParamsSortNewest)
	order := query.NewNameList()
	var all []*keptTrace
	var keys []float64
	for _, k := range kept {
		if !q.selects(k) {
			continue
		}
		key := -float64(k.Start)
		if sort == contract.ListTracesParamsSortSlowest {
			key = -float64(k.Duration)
		}
		order.Add(key, k.Trace.String(), int32(len(all)))
		all, keys = append(all, k), append(keys, key)
	}
	order.Sort()
	list := contract.ListTraces200JSONResponse{Items: []contract.KeptTrace{}, Kept: len(all), Links: []contract.Link{}}
	limit := query.Value(r.Params.Limit, query.DefaultLimit)
	// The page includes all traces to read, so that the cursor points after the last one that was read.
	candidates := query.PageOf(new(maxRead), r.Params.Cursor, "traces by "+string(sort))
	items, next, err := order.Page(candidates, func(int32) bool { return true })
	if err != nil {
		return nil, err
	}
	for at, i := range items {
		if len(list.Items) == limit {
			last := items[at-1]
			next = new(order.End(candidates, keys[last], all[last].Trace.String()))
			break
		}
		list.Read++
		x, err := a.readKept(all[i], &q, s)
		if err != nil {
			return nil, err
		}
		if x != nil {
			list.Items = append(list.Items, *x)
		}
	}
	list.NextCursor = next
	list.Links = append(list.Links,
		render.Links(directory.LinksTo(a.options.Directory().Searches, q.request(a.options.Clock())))...)
	return list, nil
}

// readKept returns a stored trace, or nil if the trace was deleted or none of its spans meets the conditions.
func (a *Requests) readKept(k *keptTrace, q *traceQuery, s *epoch.Snapshot) (*contract.KeptTrace, error) {
	data, err := a.store.Traces.Get(k.Trace)
	if err != nil || data == nil {
		return nil, err
	}
	v := sent.Read(k.Trace, k.Start, data)
	x := &contract.KeptTrace{
		ID:         k.Trace.String(),
		Start:      render.At(k.Start),
		DurationNs: k.Duration,
		Spans:      len(v.All),
		Group:      k.group.String(),
		Strata:     k.strata,
	}
	if g := s.Row(k.group); g != nil {
		x.RequestTypeName = s.Types[g.RequestType]
	}
	services := make(map[string]bool)
	found := false
	for i := range v.All {
		span := &v.All[i]
		services[span.Service] = true
		if span.Error {
			x.Errors++
		}
		if span.ID == k.Root.String() || x.Operation == "" && span.Parent == "" {
			x.Service, x.Operation = span.Service, span.Name
		}
		if !found && q.aboutSpans() && q.matches(span, v.Resources[i]) {
			found, x.Span = true, span.ID
		}
	}
	x.Services = len(services)
	if q.aboutSpans() && !found {
		return nil, nil
	}
	return x, nil
}

// leastNormal is the minimum number of traces to compare a trace with. Four suffice for quartiles.
const leastNormal = 4

// mostNormal limits the number of traces that a trace is compared with.
const mostNormal = 40

// compareTrace compares a stored trace with typical traces of the same request type, preferably from healthy
// times. It returns nil if the trace isn't an exemplar, or if fewer than leastNormal others are stored.
func (a *Requests) compareTrace(
	ctx context.Context, id trace.ID, data []byte, options critpath.Options,
) (*contract.TraceComparison, error) {
	kept, err := a.keptTraces()
	if err != nil || kept[id] == nil {
		return nil, err
	}
	s, err := a.reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	normal := a.normalTraces(s, kept, kept[id])
	if len(normal) < leastNormal {
		return nil, nil
	}
	names, extractor := &trace.Table{}, critpath.NewExtractor(options)
	profile := onetrace.NewProfile(names)
	compared := 0
	for _, k := range normal {
		other, err := a.store.Traces.Get(k.Trace)
		if err != nil {
			return nil, err
		}
		if other == nil { // it has just been deleted
			continue
		}
		t, err := otlp.DecodeNamedTrace(k.Trace, other, names, a.options.Failing)
		if err != nil {
			return nil, err
		}
		profile.Add(extractor.Extract(t))
		compared++
	}
	if compared < leastNormal {
		return nil, nil
	}
	t, err := otlp.DecodeNamedTrace(id, data, names, a.options.Failing)
	if err != nil {
		return nil, err
	}
	path := extractor.Extract(t)
	e := profile.Explain(path)
	if err := a.addUsual(ctx, kept[id].group, &e, path); err != nil {
		return nil, err
	}
	texts := describe.New(names, describe.Verbatim)
	x := describe.NewTraceExplanation(texts, id, &e)
	sentence := x.Sentence()
	d := &contract.TraceComparison{
		Sentence:      sentence.String(),
		SentenceParts: render.Sentence(texts, sentence),
		Normal:        compared,
		DurationNs:    x.DurationNS,
		UsualNs:       x.UsualNS,
		Findings:      []contract.TraceFinding{},
	}
	for i := range x.Suspects {
		d.Findings = append(d.Findings, finding(&x.Suspects[i], path))
	}
	return d, nil
}

// addUsual corrects the explanation e of p, because the few traces that p was compared with are not a random sample. It
// removes slow steps whose spans aren't longer than usual. It also sets the usual duration to the median of the healthy
// requests of the group's type, and raises the limit to their 99th percentile. It doesn't change the parts of e for
// which no healthy requests or spans are known.
func (a *Requests) addUsual(ctx context.Context, id analysis.Hash, e *onetrace.Explanation, p *critpath.Path) error {
	return a.reader.Ask(ctx, func(c *engine.View) {
		e.Suspects = slices.DeleteFunc(e.Suspects, func(s onetrace.CallSuspect) bool {
			return isUsual(c.Spans, p, &s)
		})
		g := c.Groups.Group(id)
		if g == nil || !e.Known() {
			return
		}
		if usual := &g.Parent().Reference; usual.Total.N > 0 {
			e.Usual, e.Limit = usual.Latency.Quantile(0.5), max(e.Limit, usual.Latency.Quantile(0.99))
		}
	})
}

// usualTail is the quantile of the usual durations of a step that the duration of a slow span must exceed.
const usualTail = 0.9

// isUsual reports whether the span of a slow step takes no longer than such spans usually do.
func isUsual(spans *observation.RecentSpans, p *critpath.Path, s *onetrace.CallSuspect) bool {
	if s.Reason != onetrace.Slow || s.Part == onetrace.CallsPart {
		return false
	}
	usual := rankedSpans(spans, p.Nodes[s.Node].Step)
	return usual.Count() >= minRanked && float64(p.Span(s.Node).Duration()) <= usual.Quantile(usualTail)
}

func finding(c *describe.CallSuspect, path *critpath.Path) contract.TraceFinding {
	f := contract.TraceFinding{
		Reason:    contract.TraceFindingReason(c.Reason),
		Part:      render.Optional(string(c.Part)),
		Service:   c.Service,
		Operation: c.Operation,
		Span:      path.Nodes[c.Node].ID.String(),
		ExcessNs:  c.ExcessNS,
		Calls:     c.Calls,
		Missing:   []string{},
		Text:      c.Text(),
	}
	for _, m := range c.Missing {
		f.Missing = append(f.Missing, m.Service+" "+m.Operation)
	}
	return f
}

// normalTraces returns at most mostNormal stored traces to compare k with, latest first: traces of the same request
// type that didn't fail. Fast traces, and traces that started while an incident affected the type, are included only if
// there would otherwise be fewer than leastNormal.
func (a *Requests) normalTraces(s *epoch.Snapshot, kept map[trace.ID]*keptTrace, k *keptTrace) []*keptTrace {
	g := s.Row(k.group)
	if g == nil {
		return nil
	}
	of := make(map[analysis.Hash]bool)
	for i := range s.Groups {
		if s.Groups[i].RequestType == g.RequestType {
			of[s.Groups[i].ID] = true
		}
	}
	var all, typical, healthy, both []*keptTrace
	for _, x := range kept {
		is := func(stratum string) bool { return slices.Contains(x.strata, stratum) }
		if x.Trace == k.Trace || !of[x.group] || !is("typical") && !is("fast") || is("failed") {
			continue
		}
		all = append(all, x)
		well := !affected(s, g.RequestType, x.Start)
		if is("typical") {
			typical = append(typical, x)
		}
		if well {
			healthy = append(healthy, x)
		}
		if is("typical") && well {
			both = append(both, x)
		}
	}
	for _, better := range [][]*keptTrace{typical, healthy, both} {
		if len(better) >= leastNormal {
			all = better
		}
	}
	sorting.Slice(all, func(x, y *keptTrace) int {
		return cmp.Or(cmp.Compare(y.Start, x.Start), x.Trace.Compare(y.Trace))
	})
	return all[:min(len(all), mostNormal)]
}

// affected reports whether an incident that was in progress at the time `when` affects requestType.
func affected(s *epoch.Snapshot, requestType analysis.Hash, when trace.Nanos) bool {
	for i := range s.Incidents {
		x := &s.Incidents[i]
		if render.At(when).Before(x.Onset) || x.Closed != nil && render.At(when).After(*x.Closed) {
			continue
		}
		is := func(t contract.IncidentRequestType) bool { return t.ID == requestType.String() }
		if slices.ContainsFunc(x.RequestTypes, is) {
			return true
		}
	}
	return false
}
