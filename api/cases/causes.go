package cases

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/search"
)

func (r renderer) refined(shares []detect.RefinedShare) []contract.Refined {
	all := make([]contract.Refined, 0, len(shares))
	for i := range shares {
		x := &shares[i]
		all = append(all, contract.Refined{
			Within:      render.EdgeID(x.Within),
			Context:     r.Context(x.Context),
			Operation:   r.Op(x.Op),
			Tracepoint:  r.Tracepoint(x.Tracepoint),
			Arm:         search.ArmName(x.Arm),
			Requests:    int64(x.N),
			Hits:        int64(x.Hits),
			MeanNs:      render.Number(x.Mean),
			ExclusiveNs: render.Number(x.Exclusive),
			Share:       render.Interval(x.Share, x.ShareLow, x.ShareHigh),
			Self:        render.Number(x.Self),
			ShareMean:   render.Number(x.ShareMean),
		})
	}
	return all
}

// addCauses adds the causes of p to d, except for the explanations. They are about durations: if requests are no
// slower, there are none.
func (r renderer) addCauses(d *contract.GetProblem200JSONResponse, p *detect.Problem) {
	causes := describe.NoCauses()
	if f := r.Core.Problems.Findings(p.ID); f != nil && (p.Kind != detect.KindShifted || p.Slower()) {
		causes = describe.NewCauses(r.Names, p, f)
	}
	d.JointCorrelation, d.Unrelated = causes.Joint.Pointer(), make([]contract.Unrelated, 0, len(causes.Unrelated))
	for _, x := range causes.Unrelated {
		d.Unrelated = append(d.Unrelated, contract.Unrelated{Variable: x.Variable, Where: x.Where})
	}
	d.Contrasts = make([]contract.Contrast, 0, len(causes.Contrasts))
	for i := range causes.Contrasts {
		d.Contrasts = append(d.Contrasts, r.contrast(&causes.Contrasts[i]))
	}
	d.WhatIf = make([]contract.Recovery, 0, len(causes.WhatIf))
	for i := range causes.WhatIf {
		d.WhatIf = append(d.WhatIf, r.recovery(&causes.WhatIf[i]))
	}
	d.Common = []contract.CommonEdges{}
	for i, c := range r.Core.Common {
		if slices.ContainsFunc(c.Edges, func(e explain.TypedEdge) bool { return e.RequestType == p.RequestType }) {
			x := describe.NewCommon(r.Names, &r.Core.Common[i])
			d.Common = append(d.Common, r.commonEdges(&x))
		}
	}
}

func (r renderer) contrast(c *describe.Contrast) contract.Contrast {
	x := contract.Contrast{
		Text:      c.Text,
		TextParts: render.Sentence(r.Names, c.Sentence),
		Key:       c.Key,
		Value:     c.Value,
		Requests:  c.Requests,
		Rest:      c.Rest,
		Duration:  difference(&c.Duration),
		Edges:     make([]contract.Difference, 0, len(c.Edges)),
	}
	for i := range c.Edges {
		x.Edges = append(x.Edges, difference(&c.Edges[i]))
	}
	return x
}

func difference(d *describe.Difference) contract.Difference {
	x := contract.Difference{
		MeanNs:   d.MeanNS.Pointer(),
		RestNs:   d.RestNS.Pointer(),
		ExcessNs: d.ExcessNS.Pointer(),
		LowNs:    d.LowNS.Pointer(),
		HighNs:   d.HighNS.Pointer(),
		PValue:   d.PValue.Pointer(),
	}
	if d.Edge != nil {
		x.Edge = new(render.Place(d.Edge))
	}
	return x
}

func (r renderer) recovery(x *describe.Recovery) contract.Recovery {
	return contract.Recovery{
		Text:         x.Text,
		TextParts:    render.Sentence(r.Names, x.Sentence),
		Edge:         render.Place(x.Edge),
		LevelNs:      x.LevelNS,
		Requests:     x.Requests,
		MeanNs:       x.MeanNS.Pointer(),
		MeanLowNs:    x.MeanLowNS.Pointer(),
		MeanHighNs:   x.MeanHighNS.Pointer(),
		MeanFraction: x.MeanFraction.Pointer(),
		P99Ns:        x.P99NS,
		P99Fraction:  x.P99Fraction.Pointer(),
	}
}

func (r renderer) commonEdges(c *describe.Common) contract.CommonEdges {
	x := contract.CommonEdges{
		Text:        c.Text,
		TextParts:   render.Sentence(r.Names, c.Sentence),
		Correlation: c.Correlation.Pointer(),
		PValue:      c.PValue.Pointer(),
		Edges:       make([]contract.TypedEdge, 0, len(c.Edges)),
	}
	for _, e := range c.Edges {
		x.Edges = append(x.Edges,
			contract.TypedEdge{RequestType: e.RequestType, RequestTypeID: e.RequestTypeID, Context: e.Context})
	}
	return x
}
