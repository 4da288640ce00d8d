package report

import "github.com/sibyl-trace/sibyl/engine/offline"

// jsonExemplars holds the exemplars of a problem.
type jsonExemplars struct {
	Slow    []jsonExemplar `json:"slow"`
	Typical []jsonExemplar `json:"typical"`
	Fast    []jsonExemplar `json:"fast"`
}

type jsonExemplar struct {
	TraceID    string `json:"trace_id"`
	DurationNS int64  `json:"duration_ns"`
}

func jsonExemplarsOf(e *offline.Exemplars) jsonExemplars {
	list := func(exemplars []offline.Exemplar) []jsonExemplar {
		all := make([]jsonExemplar, len(exemplars))
		for i, x := range exemplars {
			all[i] = jsonExemplar{x.Trace.String(), int64(x.Duration)}
		}
		return all
	}
	return jsonExemplars{list(e.Slow), list(e.Typical), list(e.Fast)}
}
