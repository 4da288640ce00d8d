package history

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// A history keeps two hours.
func TestSitesKept(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	h.Merge(callsAt(table, 0, 4*time.Hour, int64(100*time.Millisecond)))
	h.Age(trace.Nanos(4 * time.Hour))
	if first := h.Requests.total[0].Slice; time.Duration(first)*SliceLength < 2*time.Hour-time.Minute ||
		time.Duration(first)*SliceLength > 2*time.Hour+time.Minute {
		t.Errorf("the history begins after %v of 4h", time.Duration(first)*SliceLength)
	}
}

// tallyOf returns a tally with a call of each of n operations of a service, numbered from first, each by its own
// instance.
func tallyOf(table *trace.Table, service string, first, n int, at time.Duration) *Tally {
	tally := NewTally()
	s := tally.slice(SliceOf(trace.Nanos(at)))
	s.entry(entryKey{root: 1}).add(spent{nanos: 1e6})
	for i := first; i < first+n; i++ {
		op := table.Op(table.Symbol(service), table.Symbol(fmt.Sprintf("op%d", i)), trace.Server)
		c := s.cell(tally.add(tallySite{
			tallyKey: tallyKey{SiteKey: SiteKey{Op: op}},
			base:     op, service: table.Symbol(service),
		}))
		c.calls, c.nanos, c.shapes = 1, 1e6, []shapeCount{{Shape{1, false, true}, 1}}
		x := place{service: table.Symbol(service)}
		x.values[1] = table.Symbol(fmt.Sprintf("pod%d", i))
		tally.places.list = append(tally.places.list, x)
		*tally.place(s, int32(len(tally.places.list)-1)) = placeCell{calls: 1}
	}
	return tally
}

// TestSitesEvicted fills a history with sites and instances that are called once. After two hours they make room for
// new ones, and so do their services. A site that is still called keeps its place and its history.
func TestSitesEvicted(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	h.Limit = 4000
	ofService := h.serviceLimit() - 1
	merge := func(tally *Tally, at time.Duration) {
		h.Merge(tally)
		h.Age(trace.Nanos(at))
	}
	merge(tallyOf(table, "kept", 0, 1, 0), 0)
	for i := range h.Limit / ofService {
		merge(tallyOf(table, fmt.Sprint("old", i), 0, ofService, 0), 0)
	}
	left := h.Limit - h.Len()
	merge(tallyOf(table, "last", 0, left+1, 0), 0)
	if h.Len() != h.Limit || h.Refused() != 1 {
		t.Fatalf("%d sites, %d calls refused; want %d and 1", h.Len(), h.Refused(), h.Limit)
	}
	const last, pause = Span + 20*time.Minute, 10 * time.Minute
	for at := pause; at <= last; at += pause {
		merge(tallyOf(table, "kept", 0, 1, at), at)
	}
	if h.Len() != 1 || h.Services.Len() != 1 || h.shapes != 1 {
		t.Errorf("%d sites of %d services with %d shapes; want only the one that is called",
			h.Len(), h.Services.Len(), h.shapes)
	}
	if got := h.series[1].Unpack(nil).Calls(); got != uint64(last/pause+1) {
		t.Errorf("%d calls of the site that was kept", got)
	}
	if got := len(h.Instances.series); got != 1+left+1 {
		t.Errorf("%d instances, want the one that is called and those of the service with few", got)
	}
	for i := range h.Limit / ofService {
		merge(tallyOf(table, fmt.Sprint("new", i), 0, ofService, last), last)
	}
	merge(tallyOf(table, "last", 0, h.Limit-h.Len(), last), last)
	if h.Len() != h.Limit || h.Refused() != 1 {
		t.Errorf("%d sites, %d calls refused; want %d and no more than before", h.Len(), h.Refused(), h.Limit)
	}
	restored, err := DecodeSites(h.AppendBinary(nil), table)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(restored.AppendBinary(nil), h.AppendBinary(nil)) || restored.shapes != h.shapes {
		t.Error("a restart changes the content")
	}
}

// TestSitesOfService keeps calling new operations of a service. The service takes a quarter of the sites, its further
// operations count together, and other services have room. After two hours the service has room again, and another
// service without calls in that time keeps its sites, as a nightly job does.
func TestSitesOfService(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	serviceSites := h.serviceLimit()
	merge := func(tally *Tally, at time.Duration) {
		h.Merge(tally)
		h.Age(trace.Nanos(at))
	}
	merge(tallyOf(table, "shop", 0, 2*MaxSites, 0), 0)
	merge(tallyOf(table, "cart", 0, 100, 0), 0)
	merge(tallyOf(table, "backup", 0, 10, 0), 0)
	if got, want := h.Len(), serviceSites+1+100+10; got != want || h.Refused() != 0 {
		t.Errorf("%d sites, %d calls refused; want %d and none", got, h.Refused(), want)
	}
	other := table.Op(table.Symbol("shop"), table.Symbol(trace.Overflow), trace.Internal)
	if got := h.series[h.numbers[SiteKey{Op: other}]].Unpack(nil).Calls(); got != uint64(2*MaxSites-serviceSites) {
		t.Errorf("%d calls of other operations", got)
	}
	restored, err := DecodeSites(h.AppendBinary(nil), table)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(restored.AppendBinary(nil), h.AppendBinary(nil)) ||
		restored.Services.sites[restored.Services.Number(table.Symbol("shop"))] != serviceSites+1 {
		t.Error("a restart changes the content")
	}
	const later = Span + 20*time.Minute
	merge(tallyOf(table, "cart", 0, 100, later), later)
	if h.Len() != 100+10 || h.Services.sites[h.Services.Number(table.Symbol("backup"))] != 10 {
		t.Errorf("%d sites after two hours, want those of the services with few", h.Len())
	}
}

// TestInstancesReplaced replaces all 64 pods of a service while an incident is open. The new ones find room two hours
// after the last call of the old ones, although the history before the incident is kept.
func TestInstancesReplaced(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	counted := func(pod string) bool {
		return h.Instances.series[InstanceKey{table.Symbol("cart"), InstanceKeys[1], table.Symbol(pod)}] != nil
	}
	end := Span + 20*time.Minute
	for at := time.Duration(0); at < end; at += time.Minute {
		first := 0
		if at >= 10*time.Minute {
			first = maxValues
			h.Skip(1, Interval{trace.Nanos(10 * time.Minute), trace.Nanos(at)})
		}
		h.Merge(tallyOf(table, "cart", first, maxValues, at))
		h.Age(trace.Nanos(at))
		if at == 20*time.Minute && counted("pod64") {
			t.Error("there was room for a new pod")
		}
	}
	if counted("pod0") || !counted("pod64") || !counted("pod127") {
		t.Errorf("pods counted: old %t, new %t and %t", counted("pod0"), counted("pod64"), counted("pod127"))
	}
}

// TestSkippedForgotten keeps an incident open for a day. The history before it stays, and only the last half hour of
// the incident is kept with it.
func TestSkippedForgotten(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	const day, healthy = 24 * time.Hour, time.Hour
	for at := time.Duration(0); at < day; at += time.Minute {
		if at > healthy {
			h.Skip(1, Interval{trace.Nanos(healthy), trace.Nanos(at)})
		}
		h.Merge(tallyOf(table, "cart", 0, 1, at))
		h.Age(trace.Nanos(at))
	}
	all := h.series[1].Unpack(nil)
	if got := len(all.Within(Range{0, SliceOf(trace.Nanos(healthy))})); got != int(healthy/time.Minute) {
		t.Errorf("%d minutes before the incident, want %d", got, int(healthy/time.Minute))
	}
	if got := len(all); got < int((healthy+65*time.Minute)/time.Minute) ||
		got > int((healthy+67*time.Minute)/time.Minute) {
		t.Errorf("%d minutes in all, want two hours and five minutes", got)
	}
}

// Accept deletes the calls of a service and the calls to it before an interval, and returns the interval to the
// history.
func TestAccept(t *testing.T) {
	f := tracetest.NewFleet(3)
	h := NewSites(f.Table)
	play(h, f, 0, 33*time.Minute, tracetest.Instances(2))
	window := Interval{trace.Nanos(30 * time.Minute), trace.Nanos(33 * time.Minute)}
	service := f.Table.Symbol("cart")
	h.Skip(1, Interval{window.From.Add(-time.Hour), window.To.Add(time.Hour)})
	h.Accept(service, window)
	for s, want := range map[Slice]bool{
		SliceOf(window.From) - 1: true,
		SliceOf(window.From):     false, SliceOf(window.To): false, SliceOf(window.To) + 1: true,
	} {
		if h.Skipped.Of(service).Contains(s) != want {
			t.Errorf("slice %d of [%d, %d] skipped: %t", s, SliceOf(window.From), SliceOf(window.To), !want)
		}
	}
	callees, _ := h.Callees(nil)
	own, others := 0, 0
	for i := 1; i <= h.Len(); i++ {
		s := &h.series[i]
		all := s.Unpack(nil)
		old := len(all) > 0 && all[0].Slice < SliceOf(window.From)
		for k := range s.Shapes {
			old = old || s.Shapes[k].Unpack(nil)[0].Slice < SliceOf(window.From)
		}
		number := h.Services.Number(service)
		switch mine := h.sites[i].Service == number || callees[i].Service == number; {
		case mine && old:
			t.Errorf("site %d has calls before the interval", i)
		case mine:
			own++
		case old:
			others++
		}
	}
	if own == 0 || others == 0 {
		t.Errorf("%d sites of the service, %d others with an older history", own, others)
	}
}
