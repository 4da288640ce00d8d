package report

import (
	"io"
	"math"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Limits on the page, so that a browser opens it quickly. JSON contains everything.
const (
	pageProblems = 100
	pageTypes    = 100
	pageGroups   = 20 // groups per request type
	pageEdges    = 15
	problemEdges = 6
	pageBecause  = 5
	pageOpen     = 3       // request types that are unfolded although they have no problems
	minFrame     = 0.00025 // smallest width of a frame, as a fraction
)

// HTML writes r as one self-contained page that needs no other files and no network. The commands shown on the page
// name in.Files.
func HTML(w io.Writer, r *offline.Report, in Input) error {
	p := newPage(r, in)
	return p.render(w)
}

// page holds the contents of the HTML page. Numbers are already formatted as text.
type page struct {
	Traces, Spans, Judged, Rejected string
	Cut, Coverage                   []string
	Incidents                       []pageIncident
	Problems                        []pageProblem
	ProblemCount                    string
	MoreProblems                    int
	Types                           []pageType
	MoreTypes                       int
	TypeCount, GroupCount           string
}

type pageIncident struct {
	Began, Lasted string
	Sentence      describe.Sentence
}

type pageProblem struct {
	Rank                int
	Kind, Onset, Who    string
	Changed             bool
	Requests, Impact    string
	CoV                 string
	Diagnosis           describe.Sentence
	Path                []string
	ShareName           string // title of the column of the shares of Edges
	TailName            string // title of the last column of Edges
	Edges               []pageEdge
	MoreEdges           string            // number and share of the edges that are not shown
	Size                describe.Sentence // may be empty
	Because, Next       []describe.Sentence
	OnlyOn, WhatIf      []describe.Sentence
	Traces              describe.Sentence
	Show                string // command that shows one of Traces
	Anchor, RequestType string // anchor and name of the request type
}

type pageEdge struct {
	Where            string
	Value, Low, High float64 // share and its interval, in percent, limited to 0–100
	Share, Interval  string
	Mean, MeanShare  string
	Tail             string
}

type pageType struct {
	Anchor, Name        string
	Count               string
	P50, P99, Mean, CoV string
	Between             string            // share of the variance between groups; empty if small
	Size                describe.Sentence // may be empty
	Open                bool
	Histogram           histogram
	Frames              []pageFrame
	Rows                int // number of rows of Frames
	Edges               []pageEdge
	MoreEdges           int
	Groups              []pageGroup
	MoreGroups          int
	ProblemRanks        []int
}

type pageGroup struct {
	ID, Count, P50, P99, Mean, CoV string
	Bins, Where                    string
}

// pageFrame is one box of the icicle chart.
type pageFrame struct {
	Name, Path        string
	Left, Width       float64 // percent
	Row               int
	Heat, Cold        float64 // 0–100: share of the variance if it is positive, or its absolute value if it is negative
	Own, Total, Share string
	Part              string // share of the whole path
}

func newPage(r *offline.Report, in Input) page {
	n := newNames(r, terminal.Printable)
	n.files = in.Files
	types, groups := levels(r.Groups)
	p := page{
		Traces:       units.Plural(r.Traces, "trace"),
		Spans:        units.Plural(r.Spans, "span"),
		Judged:       judged(r),
		Rejected:     rejections(r.Rejected),
		TypeCount:    units.Plural(types, "request type"),
		GroupCount:   units.Plural(groups, "group"),
		ProblemCount: units.Plural(len(r.Problems), "problem"),
		MoreProblems: max(0, len(r.Problems)-pageProblems),
		MoreTypes:    max(0, types-pageTypes),
	}
	p.Coverage = n.coverage(&r.Coverage)
	if saw, do := describe.Families(n.Names, r.Families); saw != "" {
		p.Coverage = append(p.Coverage, saw+" "+do)
	}
	for _, text := range in.Cut {
		p.Cut = append(p.Cut, terminal.Printable(text))
	}
	p.Incidents = pageIncidents(r.Incidents)
	affected := affectedTypes(r)
	ranks := make(map[analysis.Hash][]int)
	for i := range r.Problems[:min(pageProblems, len(r.Problems))] {
		id := r.Problems[i].RequestType
		p.Problems = append(p.Problems, n.pageProblem(i+1, &r.Problems[i], affected))
		ranks[id] = append(ranks[id], i+1)
	}
	for i := 0; i < len(r.Groups) && len(p.Types) < pageTypes; i++ {
		if s := &r.Groups[i]; s.Level == group.LevelRequestType {
			t := n.pageType(s, groupsOf(r.Groups, i))
			t.ProblemRanks = ranks[s.ID]
			t.Open = len(p.Types) < pageOpen || len(t.ProblemRanks) > 0
			p.Types = append(p.Types, t)
		}
	}
	return p
}

// pageIncidents returns the incidents in r, which may be nil, in the form of the page.
func pageIncidents(r *backtest.Result) []pageIncident {
	if r == nil {
		return nil
	}
	n := backtestNames(r, terminal.Printable)
	var all []pageIncident
	for i := range r.Incidents {
		x := &r.Incidents[i]
		lasted := "open at the end"
		if !x.IsOpen() {
			lasted = "lasted " + units.Span(x.Lasted(0))
		}
		all = append(all, pageIncident{
			Began:    "began " + describe.Clock(x.Onset, true) + " UTC",
			Lasted:   lasted,
			Sentence: n.incident(x).Sentence,
		})
	}
	return all
}

// groupsOf returns the groups of the request type all[i], which directly follow it.
func groupsOf(all []group.Summary, i int) []group.Summary {
	end := i + 1
	for end < len(all) && all[end].Level == group.LevelGroup {
		end++
	}
	return all[i+1 : end]
}

func anchor(id analysis.Hash) string { return "type-" + id.String() }

func (n *names) pageProblem(rank int, r *offline.Problem, affected requestTypes) pageProblem {
	p := &r.Problem
	v := pageProblem{
		Rank:        rank,
		Kind:        p.Kind.String(),
		Onset:       affected.onset(p),
		Changed:     p.Onset == detect.Changed,
		Who:         "all requests of the type",
		Requests:    units.Plural(int(p.Requests), "request"),
		Impact:      describe.PerSecond(p.Impact),
		CoV:         units.Ratio(p.CoV) + " (" + units.Ratio(p.CoVLow) + "–" + units.Ratio(p.CoVHigh) + ")",
		Diagnosis:   describe.Diagnosis(n.Names, p, 0, 0),
		ShareName:   shareOf(p),
		TailName:    "tail lift",
		Anchor:      anchor(p.RequestType),
		RequestType: n.RequestType(p.RequestType, p.Entry),
	}
	if p.Level == group.LevelGroup {
		v.Who = "group " + p.Group.String()[:8]
	}
	if e := describe.Leading(p); e != nil {
		v.Path = n.Context(e.Context)
	}
	for i := range p.Edges[:min(problemEdges, len(p.Edges))] {
		e := n.pageEdge(&p.Edges[i])
		if !hasIntervals(p) {
			score := p.Edges[i].Score
			e.Value, e.Low, e.High = percent(score), percent(score), percent(score)
			e.Share, e.Interval = units.Percent(score), units.Unknown
		}
		if p.Kind != detect.KindVariable {
			v.TailName, e.Tail = "excess", units.Signed(p.Edges[i].Excess)
		}
		v.Edges = append(v.Edges, e)
	}
	v.MoreEdges = moreEdges(p)
	v.Size = sizeSentence(p.Size)
	v.Because = n.because(p)
	causes := describe.NewCauses(n.Names, p, &r.Findings)
	for i := range causes.Contrasts[:min(shownContrasts, len(causes.Contrasts))] {
		v.OnlyOn = append(v.OnlyOn, causes.Contrasts[i].Sentence)
	}
	v.WhatIf = recoveries(&causes)
	v.Traces, v.Show = n.exemplars(r), n.show(r)
	v.Because = v.Because[:min(len(v.Because), pageBecause)]
	v.Next = n.next(r)
	return v
}

// moreEdges returns the number and the share of the edges of p that aren't shown, as text, or "" if all are shown.
func moreEdges(p *detect.Problem) string {
	if len(p.Edges) <= problemEdges {
		return ""
	}
	sum := 0.
	for i := range p.Edges[problemEdges:] {
		sum += p.Edges[problemEdges+i].Score
	}
	return units.Plural(len(p.Edges)-problemEdges, "more edge") + ": together " + units.Percent(sum) + " of the " +
		shareOf(p)
}

func (n *names) pageEdge(e *group.EdgeShare) pageEdge {
	return pageEdge{
		Where:     n.Edge(e),
		Value:     percent(e.ShareVariance),
		Low:       percent(e.ShareLow),
		High:      percent(e.ShareHigh),
		Share:     units.Percent(e.ShareVariance),
		Interval:  units.Range(e.ShareLow, e.ShareHigh),
		Mean:      units.Nanos(e.Mean),
		MeanShare: units.Percent(e.ShareMean),
		Tail:      units.Signed(e.TailLift),
	}
}

// percent returns the fraction f in percent, rounded to a tenth and limited to 0–100. It returns 0 if f is unknown.
func percent(f float64) float64 {
	if f != f {
		return 0
	}
	return math.Round(min(max(f, 0), 1)*1000) / 10
}

func (n *names) pageType(s *group.Summary, groups []group.Summary) pageType {
	t := pageType{
		Anchor:     anchor(s.ID),
		Name:       n.RequestType(s.ID, s.Entry),
		Count:      units.Plural(int(s.Count), "request"),
		P50:        units.Duration(s.P50),
		P99:        units.Duration(s.P99),
		Mean:       units.Duration(s.Mean),
		CoV:        units.Ratio(s.CoV) + covInterval(s),
		Histogram:  newHistogram(s),
		MoreEdges:  max(0, len(s.Edges)-pageEdges),
		MoreGroups: max(0, len(groups)-pageGroups),
	}
	if s.Between >= minBetween {
		t.Between = units.Percent(s.Between)
	}
	t.Size = sizeSentence(s.Size)
	profile := describe.NewProfile(n.Names, s)
	t.Frames, t.Rows = pageFrames(&profile)
	for _, i := range byVariance(s.Edges)[:min(pageEdges, len(s.Edges))] {
		t.Edges = append(t.Edges, n.pageEdge(&s.Edges[i]))
	}
	for i := range groups[:min(pageGroups, len(groups))] {
		t.Groups = append(t.Groups, n.pageGroup(&groups[i]))
	}
	return t
}

func (n *names) pageGroup(s *group.Summary) pageGroup {
	g := pageGroup{
		ID:    s.ID.String()[:8],
		Count: units.Count(int(s.Count)),
		P50:   units.Duration(s.P50),
		P99:   units.Duration(s.P99),
		Mean:  units.Duration(s.Mean),
		CoV:   units.Ratio(s.CoV) + covInterval(s),
		Bins:  n.Bins(s),
	}
	if order := byVariance(s.Edges); len(order) > 0 {
		if e := &s.Edges[order[0]]; e.ShareVariance == e.ShareVariance {
			g.Where = units.Percent(e.ShareVariance) + " " + n.Edge(e)
		}
	}
	return g
}

// pageFrames lays out the frames of p: children below their parent, starting at its left edge, and the parent's own
// time to the right of its children. It returns the boxes that are at least minFrame wide, and the number of rows.
func pageFrames(p *describe.Profile) (boxes []pageFrame, rows int) {
	left := make([]float64, len(p.Frames)) // position of a frame's next child, 0–1
	for i := range p.Frames {
		f := &p.Frames[i]
		width := f.Total / p.Frames[0].Total
		at := 0.
		if f.Parent >= 0 {
			at = left[f.Parent]
			left[f.Parent] += width
		}
		left[i] = at
		if !(width >= minFrame) {
			continue
		}
		rows = max(rows, f.Depth+1)
		boxes = append(boxes, pageFrame{
			Name:  f.Name,
			Path:  pathText(p.Stack(i)),
			Left:  round(at * 100),
			Width: round(width * 100),
			Row:   f.Depth,
			Heat:  percent(f.Variance),
			Cold:  percent(-f.Variance),
			Share: units.Percent(f.Variance),
			Own:   units.Nanos(f.Own),
			Total: units.Nanos(f.Total),
			Part:  units.Percent(width),
		})
	}
	return boxes, rows
}

// round rounds x to three decimals, so that the page is small and identical on every machine.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }
