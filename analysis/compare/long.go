package compare

import (
	"github.com/sibyl-trace/sibyl/analysis/history"
)

// longRequests finds the requests in recorded traces that take much longer than most, such as streams, as
// [history.Sites] does for a running service. A few of them would outweigh all others.
type longRequests struct {
	rec   *Recording
	from  float64 // see [history.LongFrom]; 0 if no request is known
	kinds map[requestKind]history.Logs
	sites []history.Logs // by number of the site: the requests with its calls
}

// requestKind identifies requests by the site of their root and the site of its first call, or 0 if it makes no call.
type requestKind struct{ root, first int32 }

// kindOf returns the kind of a trace.
func (r *Recording) kindOf(t *recordedTrace) (k requestKind) {
	for i := t.first; i < t.last; i++ {
		switch c := &r.Calls[i]; {
		case i == t.first:
			k.root = c.Site
		case c.Parent == 0:
			k.first = c.Site
			return k
		}
	}
	return k
}

// longRequestsOf returns the long requests of t.
func longRequestsOf(t Traces) longRequests {
	l := longRequests{
		rec: t.rec, kinds: make(map[requestKind]history.Logs), sites: make([]history.Logs, len(t.rec.Sites)),
	}
	for i := range t.list {
		x := &t.list[i]
		kind := t.rec.kindOf(x)
		of := l.kinds[kind]
		of.Add(x.Duration)
		l.kinds[kind] = of
		for k := x.first; k < x.last; k++ {
			l.sites[t.rec.Calls[k].Site].Add(x.Duration)
		}
	}
	kinds := make([]history.Logs, 0, len(l.kinds))
	for _, k := range l.kinds {
		kinds = append(kinds, k)
	}
	l.from = history.LongFrom(kinds)
	return l
}

// others returns the number and the total duration in ns of the traces that are not long.
func (l *longRequests) others(traces []recordedTrace) (requests, nanos float64) {
	for i := range traces {
		if x := &traces[i]; l.from == 0 || l.kinds[l.rec.kindOf(x)].Octaves() < l.from {
			requests++
			nanos += float64(x.Duration)
		}
	}
	return requests, nanos
}

// at returns the typical duration of the requests with calls at site, and reports whether they are long. It implements
// ledger.long.
func (l *longRequests) at(site int32) (nanos float64, long bool) {
	if of := l.sites[site]; l.from > 0 && of.Calls > 0 && of.Octaves() >= l.from {
		return of.Nanos(), true
	}
	return 0, false
}
