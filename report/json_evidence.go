package report

import (
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/offline"
)

// jsonContrast is a host or version whose requests are slower than the others.
type jsonContrast struct {
	Key      string           `json:"key"`
	Value    string           `json:"value"`
	Requests int              `json:"requests"` // sampled, with the value
	Rest     int              `json:"rest"`     // sampled, with other values
	Duration jsonDifference   `json:"duration"`
	Edges    []jsonDifference `json:"edges"` // the slower ones, by falling excess
}

type jsonDifference struct {
	Edge     *describe.Place `json:"edge"` // null: the duration
	MeanNS   describe.Number `json:"mean_ns"`
	RestNS   describe.Number `json:"rest_ns"`
	ExcessNS describe.Number `json:"excess_ns"`
	LowNS    describe.Number `json:"low_ns"`
	HighNS   describe.Number `json:"high_ns"`
	PValue   describe.Number `json:"p_value"`
}

// jsonRecovery is the time that requests would gain with one edge at its reference level.
type jsonRecovery struct {
	Edge         *describe.Place `json:"edge"`
	LevelNS      int64           `json:"level_ns"`
	Requests     int             `json:"requests"` // replayed
	MeanNS       describe.Number `json:"mean_ns"`
	MeanLowNS    describe.Number `json:"mean_low_ns"`
	MeanHighNS   describe.Number `json:"mean_high_ns"`
	MeanFraction describe.Number `json:"mean_fraction"`
	P99NS        int64           `json:"p99_ns"`
	P99Fraction  describe.Number `json:"p99_fraction"`
}

// jsonCommon is a set of places in different request types whose times rise and fall together.
type jsonCommon struct {
	Edges       []jsonTypedEdge `json:"edges"`
	Correlation describe.Number `json:"correlation"`
	PValue      describe.Number `json:"p_value"`
}

type jsonTypedEdge struct {
	RequestType   string   `json:"request_type"`
	RequestTypeID string   `json:"request_type_id"`
	Context       []string `json:"context"`
}

func (n *names) jsonContrast(p *detect.Problem, c *explain.KeyedContrast) jsonContrast {
	j := jsonContrast{
		Key: c.Key, Value: n.Clean(c.Value), Requests: c.Requests, Rest: c.Rest,
		Duration: n.jsonDifference(p, &c.Duration), Edges: []jsonDifference{},
	}
	for i := range c.Edges {
		j.Edges = append(j.Edges, n.jsonDifference(p, &c.Edges[i]))
	}
	return j
}

func (n *names) jsonDifference(p *detect.Problem, d *explain.Difference) jsonDifference {
	return jsonDifference{
		Edge: n.PlaceOf(p.Edges, d.Edge), MeanNS: describe.Number(d.Mean), RestNS: describe.Number(d.Rest), ExcessNS: describe.Number(d.Value),
		LowNS: describe.Number(d.Low), HighNS: describe.Number(d.High), PValue: describe.Number(d.PValue),
	}
}

func (n *names) jsonRecovery(p *detect.Problem, x *explain.Recovery) jsonRecovery {
	return jsonRecovery{
		Edge: n.PlaceOf(p.Edges, x.Edge), LevelNS: int64(x.Level), Requests: x.Requests,
		MeanNS: describe.Number(x.Mean.Value), MeanLowNS: describe.Number(x.Mean.Low), MeanHighNS: describe.Number(x.Mean.High),
		MeanFraction: describe.Number(x.MeanPart), P99NS: int64(x.P99), P99Fraction: describe.Number(x.P99Part),
	}
}

func (n *names) jsonCommon(c *explain.CommonEdges) jsonCommon {
	j := jsonCommon{Edges: []jsonTypedEdge{}, Correlation: describe.Number(c.Correlation), PValue: describe.Number(c.PValue)}
	for _, e := range c.Edges {
		j.Edges = append(j.Edges, jsonTypedEdge{
			RequestType: n.RequestType(e.RequestType, 0), RequestTypeID: e.RequestType.String(), Context: n.Context(e.Context),
		})
	}
	return j
}

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
