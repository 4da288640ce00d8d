package services

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on the operations with too few calls. Incidents are judged in windows of three minutes, and a change must show
// in the calls of each of these minutes. So operations with fewer than leastCalls calls in ten minutes, which is about
// two per minute, rarely raise an incident.
const (
	shownFewCalls = 10   // operations in the status
	namedFewCalls = 3    // operations in the sentence
	mostFewCalls  = 0.05 // share of the calls above which the sentence suggests a remedy
)

// fewCallsRemedy is the advice on getting incidents about failures of rare requests nevertheless.
const fewCallsRemedy = "Set objectives for their requests: objectives look at an hour and six hours instead of " +
	"minutes. " +
	"Or sample more of the requests."

// FewCalls returns the operations and services with too few calls. The result may be newer than s, or older by less
// than fewCallsAge.
func (a *Services) FewCalls(ctx context.Context, s *epoch.Snapshot) (*contract.FewCalls, error) {
	found := a.recentFew(s)
	if found != nil {
		return found, nil
	}
	var refused error
	err := a.reader.Ask(ctx, func(c *engine.View) {
		s := a.reader.Refresh(c)
		if found = a.recentFew(s); found != nil {
			return
		}
		var t *serviceTable
		if t, refused = a.table(c, s, serviceKey{}); refused == nil {
			found = t.fewCalls(c.Table)
			a.keepFew(found, s)
		}
	})
	return found, cmp.Or(err, refused)
}

// fewCallsAge is the maximum age of a count. Counts are cached because the status is read every epoch, and counting
// takes time linear in the size of the history.
const fewCallsAge = time.Minute

// recentFew returns the cached operations with few calls, or nil if they were counted fewCallsAge or longer before the
// end of s.
func (a *Services) recentFew(s *epoch.Snapshot) *contract.FewCalls {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.Ended.Sub(a.fewAt) >= fewCallsAge {
		return nil
	}
	return a.few
}

// keepFew caches the operations with few calls as of s.
func (a *Services) keepFew(x *contract.FewCalls, s *epoch.Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.few, a.fewAt = x, s.Ended
}

// fewCalls returns the operations and services in t that currently have too few calls.
func (t *serviceTable) fewCalls(names *trace.Table) *contract.FewCalls {
	texts := describe.New(names, describe.Verbatim)
	few := func(x *history.Use) bool { return x.Now.Calls < leastCalls }
	f := &contract.FewCalls{Operations: []contract.FewCallsOperation{}}
	var calls, fewCalls uint64
	for i := range t.uses.Services {
		s := &t.uses.Services[i]
		if !known(&s.Use) {
			continue
		}
		f.OfServices++
		if few(&s.Use) {
			f.Services++
		}
		for k := range s.Operations {
			o := &s.Operations[k]
			calls += o.Now.Calls
			f.OfOperations++
			if !few(&o.Use) {
				continue
			}
			fewCalls += o.Now.Calls
			f.Operations = append(f.Operations, contract.FewCallsOperation{
				Service:   texts.Clean(names.Text(s.Service)),
				Operation: texts.Clean(names.OpName(o.Op)),
				Calls:     int(o.Now.Calls),
			})
		}
	}
	sorting.SliceStable(f.Operations, func(a, b contract.FewCallsOperation) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Service, b.Service),
			cmp.Compare(a.Operation, b.Operation))
	})
	f.Count = len(f.Operations)
	if calls > 0 {
		f.ShareOfCalls = float64(fewCalls) / float64(calls)
		f.Text = fewCallsText(f)
	}
	if f.ShareOfCalls > mostFewCalls {
		f.Remedy = fewCallsRemedy
	}
	f.Operations = f.Operations[:min(shownFewCalls, len(f.Operations))]
	return f
}

// known reports whether the history of x is long enough to compare later calls with.
func known(x *history.Use) bool { return x.Known >= leastUsual }

// fewCallsText returns sentences that count the operations in f and name the first ones. It returns "" if f contains no
// operations.
func fewCallsText(f *contract.FewCalls) string {
	if f.Count == 0 {
		return ""
	}
	var named []string
	for _, o := range f.Operations[:min(namedFewCalls, f.Count)] {
		named = append(named, fmt.Sprintf("%s of %s (%d)", o.Operation, o.Service, o.Calls))
	}
	if more := f.Count - len(named); more > 0 {
		named = append(named, units.Count(more)+" more")
	}
	text := fmt.Sprintf("%s of %s, with %s of the calls, had fewer than %d calls in ten minutes: %s.",
		units.Count(f.Count), units.Plural(f.OfOperations, "operation"), units.Part(f.ShareOfCalls), leastCalls,
		strings.Join(named, ", "))
	if f.Services > 0 {
		text += fmt.Sprintf(" %s of %s had that few in total.",
			units.Count(f.Services), units.Plural(f.OfServices, "service"))
	}
	return text + " These are too few to judge well: incidents about them may open late, not at all, or by chance."
}
