package compare

import (
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// Comparison is the result of [Comparer.Compare].
type Comparison struct {
	Suspects []Suspect // ordered as by [Normal.Compare]
	Requests uint64    // traces in the window
	// Duration is the mean duration of a trace in the history in ns, at least 1. It is the unit of the times in
	// Suspects.
	Duration float64
	Mean     float64          // mean duration of a trace in the window in ns
	Young    []YoungOperation // ascending by service and operation
}

// YoungOperation is an operation that can't be judged separately yet, because it has been known for less than a day.
type YoungOperation struct {
	Service trace.Symbol
	Before  float64 // calls in the history at sites with calls in the window
	SuspectOperation
}

// Compare ranks all services by their additional cost in a window relative to the traces before it that were not
// skipped. It differs from [Normal.Compare] in a few ways:
//
//   - History and window are divided at slices of time instead of at calls.
//   - Callers are charged for changed shapes only beyond those of their callees, but by site instead of by trace. The
//     result is the same unless a call has several changed callees.
//   - Services whose inner spans have changed are judged by local times.
//   - A lasting judge also charges silence and typical times.
//
// Compare takes time linear in the number of cells of the sites with calls in the window. With Brief, it takes less,
// because verdicts are cached for sites whose calls did not change since the last window; see [verdict].
func (m *Comparer) Compare(window history.Interval, judge Judge) Comparison {
	h, w := m.Sites, window.Slices()
	c := m.begin(w, judge)
	requests := h.Requests.Total().Within(w).Calls()
	result := Comparison{Requests: requests, Duration: c.usual()}
	if requests == 0 {
		return result
	}
	result.Mean = float64(h.Requests.Total().Within(w).Time()) / float64(requests)
	c.ledger = newLedger(c.graph(), float64(requests), result.Duration, judge)
	c.long, c.running = h.Long, true
	c.chooseTimes()
	if judge.lasting() {
		c.wholes = make([]wholeTimes, len(h.Services.Names()))
	}
	c.chargeSource(c)
	if !judge.soft {
		for i := range c.evidence {
			c.evidence[i].soft = 0
		}
	}
	result.Suspects, result.Young = c.rank(), c.young()
	if !judge.soft && tied(result.Suspects) {
		judge.soft = true
		return m.Compare(window, judge)
	}
	return result
}

// tied reports whether two suspects with a score are ordered by Soft only.
func tied(suspects []Suspect) bool {
	for i := 1; i < len(suspects); i++ {
		a, b := &suspects[i-1], &suspects[i]
		if score := b.Score + b.Shape; score > 0 && a.Score+a.Shape == score && a.Opaque == b.Opaque {
			return true
		}
	}
	return false
}

// Comparer compares windows of a history with the time before. It is not safe for concurrent use.
//
// It reuses memory from one comparison to the next, and caches verdicts on sites, so that a comparison by [Brief] reads
// only the sites whose calls have changed; see [verdict].
type Comparer struct {
	*history.Sites
	// Spread calls do for each i in [0, n), in any order or concurrently, and returns once all calls have returned. A
	// comparison uses it to read the sites, because reading them takes most of its time. Results don't depend on it.
	Spread   func(n int, do func(i int))
	memory   comparing
	pieces   [sitePieces]comparing // memory for the calls of do
	indexed  *siteIndex            // nil if not yet known
	numbered uint64                // value of [history.Changes.Renumbered] for indexed
	changes  uint64                // changes of the history when the comparison started
	verdicts []verdict             // by number of the site
	about    verdictsAbout
}

// verdictsAbout identifies the comparisons that can use the cached verdicts.
type verdictsAbout struct {
	judge      Judge
	length     history.Slice // of the windows
	renumbered uint64        // value of [history.Changes.Renumbered]
}

// NewComparer returns a comparer of a history. It reads the sites sequentially unless Spread is replaced.
func NewComparer(h *history.Sites) *Comparer {
	return &Comparer{Sites: h, Spread: func(n int, do func(i int)) {
		for i := range n {
			do(i)
		}
	}}
}

// begin returns w as a window that uses the memory of m. Only judges without soft use verdicts. For such a judge, begin
// discards the verdicts if the judge or the length of the window has changed, or if sites were renumbered.
func (m *Comparer) begin(w history.Range, judge Judge) *liveWindow {
	if about := (verdictsAbout{judge, w.Length(), m.Changes.Renumbered()}); !judge.soft && about != m.about {
		clear(m.verdicts)
		m.about = about
	}
	if n := len(m.All()); len(m.memory.bad) != n {
		m.memory = comparing{
			bad:   make([]badCalls, n),
			now:   make([]float64, n),
			known: make(map[history.Shape][]float64),
		}
		m.verdicts = append(m.verdicts, make([]verdict, max(0, n-len(m.verdicts)))...)[:n]
	}
	for _, i := range m.memory.judged {
		m.memory.bad[i] = badCalls{shapes: m.memory.bad[i].shapes[:0]}
	}
	m.memory.judged = m.memory.judged[:0]
	c := m.comparison(w, m.Skipped.Any())
	c.comparing = &m.memory
	return c
}

// index returns the index of the sites.
func (m *Comparer) index() *siteIndex {
	all, numbered := m.All(), m.Changes.Renumbered()
	if m.indexed == nil || m.numbered != numbered || len(m.indexed.step) != len(all) {
		m.indexed, m.numbered = indexOf(all, m.Services.Names(), m.Table()), numbered
	}
	return m.indexed
}

// comparison returns w as a window that uses new memory.
func (m *Comparer) comparison(w history.Range, skipped history.Ranges) *liveWindow {
	m.changes = m.Changes.Note(w.From)
	return &liveWindow{comparing: &comparing{}, of: m, h: m.Sites, window: w, skipped: skipped.Before(w.From)}
}
