package report

import (
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/trace"
)

// jsonContrast is a host or version that is slower than the others.
type jsonContrast struct {
	Key      string           `json:"key"`
	Value    string           `json:"value"`
	Requests int              `json:"requests"` // sampled, with the value
	Rest     int              `json:"rest"`     // sampled, with other values
	Duration jsonDifference   `json:"duration"`
	Edges    []jsonDifference `json:"edges"` // those that are slower, the most first
}

type jsonDifference struct {
	Edge     *jsonPlace `json:"edge"` // null: the duration
	MeanNS   number     `json:"mean_ns"`
	RestNS   number     `json:"rest_ns"`
	ExcessNS number     `json:"excess_ns"`
	LowNS    number     `json:"low_ns"`
	HighNS   number     `json:"high_ns"`
	PValue   number     `json:"p_value"`
}

// jsonRecovery is what would come back if an edge were at its reference level.
type jsonRecovery struct {
	Edge         *jsonPlace `json:"edge"`
	LevelNS      int64      `json:"level_ns"`
	Requests     int        `json:"requests"` // replayed
	MeanNS       number     `json:"mean_ns"`
	MeanLowNS    number     `json:"mean_low_ns"`
	MeanHighNS   number     `json:"mean_high_ns"`
	MeanFraction number     `json:"mean_fraction"`
	P99NS        int64      `json:"p99_ns"`
	P99Fraction  number     `json:"p99_fraction"`
}

// jsonCommon is a set of places in different request types that rise and fall together.
type jsonCommon struct {
	Edges       []jsonTypedEdge `json:"edges"`
	Correlation number          `json:"correlation"`
	PValue      number          `json:"p_value"`
}

type jsonTypedEdge struct {
	RequestType   string   `json:"request_type"`
	RequestTypeID string   `json:"request_type_id"`
	Context       []string `json:"context"`
}

// placeOf returns the edge of p with the given identity, nil for none.
func (n *names) placeOf(p *detect.Problem, edge trace.Edge) *jsonPlace {
	for i := range p.Edges {
		if e := &p.Edges[i]; edge != 0 && e.Edge == edge {
			place := n.jsonPlace(e)
			return &place
		}
	}
	return nil
}

func (n *names) jsonContrast(p *detect.Problem, c *engine.NamedContrast) jsonContrast {
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
		Edge: n.placeOf(p, d.Edge), MeanNS: number(d.Mean), RestNS: number(d.Rest), ExcessNS: number(d.Value),
		LowNS: number(d.Low), HighNS: number(d.High), PValue: number(d.PValue),
	}
}

func (n *names) jsonRecovery(p *detect.Problem, x *explain.Recovery) jsonRecovery {
	return jsonRecovery{
		Edge: n.placeOf(p, x.Edge), LevelNS: int64(x.Level), Requests: x.Requests,
		MeanNS: number(x.Mean.Value), MeanLowNS: number(x.Mean.Low), MeanHighNS: number(x.Mean.High),
		MeanFraction: number(x.MeanPart), P99NS: int64(x.P99), P99Fraction: number(x.P99Part),
	}
}

func (n *names) jsonCommon(c *engine.CommonEdges) jsonCommon {
	j := jsonCommon{Edges: []jsonTypedEdge{}, Correlation: number(c.Correlation), PValue: number(c.PValue)}
	for _, e := range c.Edges {
		j.Edges = append(j.Edges, jsonTypedEdge{
			RequestType: n.RequestType(e.RequestType, 0), RequestTypeID: e.RequestType.String(), Context: n.Context(e.Context),
		})
	}
	return j
}

// jsonExemplars are requests to look at.
type jsonExemplars struct {
	Slow    []jsonExemplar `json:"slow"`
	Typical []jsonExemplar `json:"typical"`
	Fast    []jsonExemplar `json:"fast"`
}

type jsonExemplar struct {
	TraceID    string `json:"trace_id"`
	DurationNS int64  `json:"duration_ns"`
}

func jsonExemplarsOf(e *engine.Exemplars) jsonExemplars {
	list := func(exemplars []engine.Exemplar) []jsonExemplar {
		all := make([]jsonExemplar, len(exemplars))
		for i, x := range exemplars {
			all[i] = jsonExemplar{x.Trace.String(), int64(x.Duration)}
		}
		return all
	}
	return jsonExemplars{list(e.Slow), list(e.Typical), list(e.Fast)}
}
