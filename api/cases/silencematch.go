package cases

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/sent"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/trace"
)

// checkMatch returns a refusal if m has no conditions, because that would silence all incidents by mistake, or if a tag
// is incomplete.
func checkMatch(m *contract.SilenceMatch) error {
	if m.Service == "" && m.RequestType == "" && len(m.Tags) == 0 {
		return refusal.New(refusal.Invalid, "match: want a service, a request type or a tag",
			`to match all incidents, say so: "service": "*"`)
	}
	for _, tag := range m.Tags {
		if key, value, _ := strings.Cut(tag, "="); key == "" || value == "" {
			return refusal.New(refusal.Invalid, "match.tags: want key=value, such as k8s.namespace.name=shop", "")
		}
	}
	return nil
}

// matches reports whether all conditions of m hold for an incident. It returns false if in doubt: one page too many is
// better than one too few.
func (a *Cases) matches(m *contract.SilenceMatch, x *epoch.IncidentRow) bool {
	if m.Service != "" && !directory.Matches(m.Service, x.Service) {
		return false
	}
	other := func(t contract.IncidentRequestType) bool { return !directory.Matches(m.RequestType, t.Name) }
	if m.RequestType != "" && (len(x.RequestTypes) == 0 || slices.ContainsFunc(x.RequestTypes, other)) {
		return false
	}
	var samples []*sent.Spans
	for i, tag := range m.Tags {
		key, value, _ := strings.Cut(tag, "=")
		if i == 0 {
			samples = a.sampleSpans(x)
		}
		if !named(x, key, value) && !sampled(samples, x, key, value) {
			return false
		}
	}
	return true
}

// named reports whether the first suspect of x names an instance, host, zone or version with the attribute key and a
// value that matches value.
func named(x *epoch.IncidentRow, key, value string) bool {
	return len(x.Suspects) > 0 && slices.ContainsFunc(x.Suspects[0].Instances, func(i contract.SuspectInstance) bool {
		return i.Key == key && directory.Matches(value, i.Value)
	})
}

// sampled reports whether there are samples and each of them has the attribute on a span of the first suspect of x or,
// if that service emits no spans, on any span.
func sampled(samples []*sent.Spans, x *epoch.IncidentRow, key, value string) bool {
	is := func(y contract.Attribute) bool { return y.Key == key && directory.Matches(value, y.Value) }
	has := func(v *sent.Spans) bool {
		for i := range v.All {
			s := &v.All[i]
			if (s.Service == x.Service || !x.Suspects[0].EmitsSpans) &&
				(slices.ContainsFunc(s.Attributes, is) || slices.ContainsFunc(v.Resources[i], is)) {
				return true
			}
		}
		return false
	}
	return len(samples) > 0 && len(x.Suspects) > 0 &&
		!slices.ContainsFunc(samples, func(v *sent.Spans) bool { return !has(v) })
}

// sampleSpans returns the spans of the first incidentExemplars sample traces of x. It logs errors.
func (a *Cases) sampleSpans(x *epoch.IncidentRow) (all []*sent.Spans) {
	closed := trace.Nanos(0)
	if x.Closed != nil {
		closed = trace.Nanos(x.Closed.UnixNano())
	}
	found, err := SampleTraces(a.store, x.Number, x.Types, trace.Nanos(x.Onset.UnixNano()), closed)
	for i := range found[:min(len(found), incidentExemplars)] {
		var request []byte
		if request, err = a.store.Traces.Get(found[i].Trace); len(request) > 0 {
			all = append(all, sent.Read(found[i].Trace, 0, request))
		}
	}
	if err != nil {
		a.options.Log.Error("sample traces of an incident cannot be read", slog.Any("error", err))
	}
	return all
}
