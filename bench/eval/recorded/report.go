package recorded

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Report is the result for a case set. Fractions are over all cases, including those with an empty window.
type Report struct {
	Cases   []Result         `json:"cases"`
	Top1    float64          `json:"top1"`
	Top3    float64          `json:"top3"`
	Top5    float64          `json:"top5"`
	ByFault map[string]Score `json:"by_fault"`

	Noticed *backtest.Score `json:"noticed,omitempty"` // nil unless [Set.Notice] was called
	Pairs   *Pairs          `json:"pairs,omitempty"`   // nil unless [Set.NoticePairs] was called
	Choice  *ChoiceReport   `json:"choice,omitempty"`  // nil unless [Set.Choose] was called
}

// Score sums up the cases of one kind of fault.
type Score struct {
	Cases int     `json:"cases"`
	Top1  float64 `json:"top1"`
	Top3  float64 `json:"top3"`
	Top5  float64 `json:"top5"`
}

// Result is the answer to one case. Ranks are from 1, or nil if the label was not found.
type Result struct {
	Name    string  `json:"name"`
	Fault   string  `json:"fault"`
	Ranking []Entry `json:"ranking"` // in decreasing order of score; not nil
	// RankService is the rank of the labelled service among the distinct services of Ranking.
	RankService *int `json:"rank_service"`
	// RankOperation is the rank of the labelled operation in Ranking. It is nil if the ranking lacks it, or if no
	// operation is labelled.
	RankOperation *int   `json:"rank_operation"`
	Reason        string `json:"reason,omitempty"` // why Ranking is empty

	Target Target `json:"-"`
}

// Entry is a suspected operation. The first entry of a service stands for the whole service and has its score. Further
// entries have their own scores. Score is the score in [compare.Suspect].
type Entry struct {
	Service   string  `json:"service"`
	Operation string  `json:"operation"` // "" if no operation is suspected
	Score     float64 `json:"score"`

	Whole *compare.Suspect `json:"-"` // with its parts, if the entry stands for a service; otherwise nil
}

func result(c *Case, suspects []compare.Suspect, reason string, table *trace.Table) Result {
	r := Result{
		Name:    c.Name,
		Fault:   c.Fault,
		Target:  c.Target,
		Ranking: make([]Entry, 0, len(suspects)),
		Reason:  reason,
	}
	for i := range suspects {
		r.add(&suspects[i], table)
	}
	slices.SortStableFunc(r.Ranking, func(a, b Entry) int { return cmp.Compare(b.Score, a.Score) })
	r.score(c.Target)
	return r
}

// add adds s and its operations to the ranking.
func (r *Result) add(s *compare.Suspect, table *trace.Table) {
	whole := Entry{Service: table.Text(s.Service), Score: s.Score, Whole: s}
	for i, op := range s.Operations {
		if i == 0 {
			whole.Operation = table.OpName(op.Op)
			r.Ranking = append(r.Ranking, whole)
			continue
		}
		r.Ranking = append(r.Ranking, Entry{
			Service: whole.Service, Operation: table.OpName(op.Op), Score: min(op.Score, s.Score),
		})
	}
	if len(s.Operations) == 0 {
		r.Ranking = append(r.Ranking, whole)
	}
}

// score looks the label up in the ranking.
func (r *Result) score(target Target) {
	services := 0
	operation := string(trace.NormalName([]byte(target.Operation), nil))
	for i, e := range r.Ranking {
		if e.Whole != nil {
			services++
		}
		if e.Service != target.Service {
			continue
		}
		if e.Whole != nil {
			r.RankService = new(services)
		}
		if operation != "" && e.Operation == operation && r.RankOperation == nil {
			r.RankOperation = new(i + 1)
		}
	}
}

// summarize sets the fractions.
func (r *Report) summarize() {
	r.ByFault = make(map[string]Score)
	all := r.Cases
	total := scoreOf(all, func(*Result) bool { return true })
	r.Top1, r.Top3, r.Top5 = total.Top1, total.Top3, total.Top5
	for i := range all {
		fault := all[i].Fault
		if _, ok := r.ByFault[fault]; !ok {
			r.ByFault[fault] = scoreOf(all, func(x *Result) bool { return x.Fault == fault })
		}
	}
}

func scoreOf(results []Result, of func(*Result) bool) Score {
	var s Score
	var within [6]int // by rank
	for i := range results {
		x := &results[i]
		if !of(x) {
			continue
		}
		s.Cases++
		if x.RankService != nil && *x.RankService < len(within) {
			within[*x.RankService]++
		}
	}
	n := float64(max(1, s.Cases))
	s.Top1 = float64(within[1]) / n
	s.Top3 = float64(within[1]+within[2]+within[3]) / n
	s.Top5 = s.Top3 + float64(within[4]+within[5])/n
	return s
}
