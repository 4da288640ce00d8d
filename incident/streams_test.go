package incident_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestStreamsFail fails all streams, which last one to three minutes and are unknown until they end. That is one
// incident.
func TestStreamsFail(t *testing.T) {
	s, x := newShop(), critpath.NewExtractor(critpath.DefaultOptions())
	gateway := s.table.Symbol("gateway")
	streams := 0
	play := func(d time.Duration, flags trace.Flags) {
		for end := s.now.Add(d); s.now < end; s.play(epoch, nil) {
			tally := history.NewTally()
			for range 2 {
				streams++
				lasts := time.Minute + time.Duration(streams*37%120)*time.Second
				at := s.now.Add(-time.Second)
				tally.Observe(x.Extract(&trace.Trace{
					ID: trace.ID{0: byte(streams), 1: byte(streams >> 8), 15: 1},
					Spans: []trace.Span{{
						ID:      1,
						Op:      s.table.Op(gateway, s.table.Symbol("GET /events"), trace.Server),
						Service: gateway,
						Kind:    trace.Server,
						Start:   at.Add(-lasts),
						End:     at,
						Flags:   flags,
					}},
				}))
			}
			s.sites.Merge(tally)
		}
	}
	play(time.Hour, 0)
	if got := s.summary(s.now); len(got) > 0 {
		t.Errorf("healthy: %v", got)
	}
	fault := s.now
	play(8*time.Minute, trace.Error)
	if got := s.summary(fault); len(got) != 1 || !strings.HasPrefix(got[0], "gateway ") {
		t.Errorf("incidents %v, want one of the gateway", got)
	}
}
