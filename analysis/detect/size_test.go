package detect_test

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/internal/testkit/transfergen"
	"github.com/sibyl-trace/sibyl/trace"
)

// If a rule names the attribute with the size, large requests that take long are not a problem. Requests that take long
// for their size are a problem, by their CoV or by their number.
func TestSizes(t *testing.T) {
	delayed := requests.Network()
	delayed.Delayed, delayed.TimedOut = 0.08, 0.02
	withSize := group.Rules{Size: requests.BodySize, Timeout: delayed.Timeout}
	ofType := group.Rules{
		Types: []group.TypeRule{{Entry: requests.SizedEntry, Size: requests.BodySize, Timeout: delayed.Timeout}},
	}
	for name, c := range map[string]struct {
		network transfergen.Options
		rules   group.Rules
		cov     float64 // threshold
		problem bool
	}{
		"no rule":             {requests.Network(), group.Rules{}, 0.15, true},
		"other attribute":     {requests.Network(), group.Rules{Size: "none"}, 0.15, true},
		"well":                {requests.Network(), withSize, 0.15, false},
		"well, by type":       {requests.Network(), ofType, 0.15, false},
		"delayed":             {delayed, withSize, 0.15, true},
		"delayed, CoV let be": {delayed, withSize, 99, true},
		"delayed, accepted level": {delayed, group.Rules{
			Size:  requests.BodySize,
			Types: []group.TypeRule{{Entry: requests.SizedEntry, Accepted: group.AcceptedLevel{CoV: 99, Delayed: 0.5}}},
		}, 0.15, false},
	} {
		g := sizeGrouper(c.rules)
		for i, x := range transfergen.Generate(7, 600, c.network) {
			g.Observe(requests.Sized(i, trace.Nanos(i), x))
		}
		g.EndEpoch(0)
		problems := detect.New(g).Chronic(detect.Thresholds{CoV: c.cov, Delayed: 0.02, MinSamples: 50}, detect.ByImpact)
		if (len(problems) > 0) != c.problem {
			t.Errorf("%s: problems %+v", name, problems)
		}
		for _, p := range problems {
			if p.Kind != detect.KindVariable || (p.Size != nil) != (c.network == delayed) {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}

// Growing requests are not a change if their sizes are known, but delayed ones are.
func TestWatchSizes(t *testing.T) {
	small, large, slow := requests.Network(), requests.Network(), requests.Network()
	small.MaxSegments, large.MaxSegments, slow.Delayed = 8, 20, 0.3
	for name, c := range map[string]struct {
		rules   group.Rules
		then    transfergen.Options
		problem bool
	}{
		"grown, sizes unknown": {group.Rules{}, large, true},
		"grown":                {group.Rules{Size: requests.BodySize}, large, false},
		"delayed":              {group.Rules{Size: requests.BodySize}, slow, true},
	} {
		g := sizeGrouper(c.rules)
		d, options := detect.New(g), detect.DefaultWatchOptions()
		now, sent := trace.Nanos(1e18), 0
		play := func(o transfergen.Options) (problems []detect.Problem) {
			for i, x := range transfergen.Generate(uint64(now), 60, o) {
				sent++
				g.Observe(requests.Sized(sent, now.Add(time.Duration(i)*epoch/60), x))
			}
			now = now.Add(epoch)
			return d.Watch(now, options)
		}
		for range 60 {
			play(small)
		}
		d.Learn(now, options)
		opened := 0
		for range 30 {
			opened += len(play(c.then))
		}
		if (opened > 0) != c.problem {
			t.Errorf("%s: problems open in %d epochs", name, opened)
		}
	}
}
