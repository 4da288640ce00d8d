package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// stored is a span in a simulated Jaeger.
type stored struct {
	trace, id byte
	service   string
	start     time.Time
}

// jaeger simulates a Jaeger. Like real storage backends, it finds whole traces by any span of the service in the
// window, including both ends, in random order.
type jaeger struct {
	spans   []stored
	arrived func(stored) time.Time // if nil, immediately
	large   int                    // maximum spans per response; 0 is unlimited
	bad     time.Time              // windows with this time are unreadable
	fails   int                    // number of queries that fail first
	asked   int
	closed  bool
}

var errDown = errors.New("down")

func (j *jaeger) ask() error {
	j.asked++
	if j.fails > 0 {
		j.fails--
		return errDown
	}
	return nil
}

func (j *jaeger) close() error { j.closed = true; return nil }

func (j *jaeger) services(context.Context) ([]string, error) {
	var all []string
	for _, s := range j.spans {
		all = append(all, s.service)
	}
	return all, j.ask()
}

func (j *jaeger) find(_ context.Context, service string, w window, n int) (ptrace.Traces, error) {
	out := ptrace.NewTraces()
	if err := j.ask(); err != nil {
		return out, err
	}
	if !j.bad.IsZero() && w.has(j.bad) {
		return out, errUnreadable
	}
	var ids []byte
	for _, s := range j.spans {
		here := j.arrived == nil || !j.arrived(s).After(time.Now())
		if here && s.service == service && !s.start.Before(w.from) && !s.start.After(w.to) &&
			!slices.Contains(ids, s.trace) && len(ids) < n {
			ids = append(ids, s.trace)
		}
	}
	for _, s := range j.spans {
		if here := j.arrived == nil || !j.arrived(s).After(time.Now()); !here || !slices.Contains(ids, s.trace) {
			continue
		}
		rs := out.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", s.service)
		span := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		span.SetTraceID(pcommon.TraceID{s.trace})
		span.SetSpanID(pcommon.SpanID{s.id})
		span.SetStartTimestamp(pcommon.NewTimestampFromTime(s.start))
	}
	if j.large > 0 && out.SpanCount() > j.large {
		return out, errLarge
	}
	return out, nil
}

// intake counts how often it accepted each span. It returns its errors first.
type intake struct {
	errs  []error
	spans map[[2]byte]int
	last  time.Time
}

func (i *intake) Take(_ context.Context, body []byte, format receiver.Format) (receiver.Rejected, error) {
	if len(i.errs) > 0 {
		err := i.errs[0]
		i.errs = i.errs[1:]
		if err != nil {
			return receiver.Rejected{}, err
		}
	}
	traces, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(body)
	if err != nil || format != receiver.Protobuf {
		return receiver.Rejected{}, fmt.Errorf("format %d: %w", format, err)
	}
	if i.spans == nil {
		i.spans = make(map[[2]byte]int)
	}
	i.last = time.Now()
	for _, rs := range traces.ResourceSpans().All() {
		for _, s := range rs.ScopeSpans().At(0).Spans().All() {
			i.spans[[2]byte{s.TraceID()[0], s.SpanID()[0]}]++
		}
	}
	return receiver.Rejected{}, nil
}

// positions stores a position in memory.
type positions struct {
	through time.Time
	errs    []error // returned by Save first
}

func (p *positions) Load(context.Context) (time.Time, error) { return p.through, nil }

func (p *positions) Save(_ context.Context, through time.Time) error {
	if len(p.errs) > 0 {
		err := p.errs[0]
		p.errs = p.errs[1:]
		if err != nil {
			return err
		}
	}
	if through.Before(p.through) {
		panic("the position goes back")
	}
	p.through = through
	return nil
}

// pull runs a Fetcher with the options o for the given time, and returns its counters.
func pull(t *testing.T, from *jaeger, to *intake, at *positions, o Options, during time.Duration) *Counts {
	t.Helper()
	o.URL = "http://jaeger:1"
	p, err := New(to, at, o)
	if err != nil {
		t.Fatal(err)
	}
	p.source = from
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
	if !from.closed {
		t.Error("the connection was not closed")
	}
	return p.Counts()
}

// once checks that each span in `from` was accepted once, or as often as exceptions says for its trace.
func once(t *testing.T, from *jaeger, to *intake, exceptions map[byte]int) {
	t.Helper()
	for _, s := range from.spans {
		want, ok := exceptions[s.trace]
		if !ok {
			want = 1
		}
		if n := to.spans[[2]byte{s.trace, s.id}]; n != want {
			t.Errorf("span %d of trace %d of %s was taken %d times, want %d", s.id, s.trace, s.service, n, want)
		}
	}
}

// application returns traces of the last hour, each with up to 8 spans of three services. Some spans start in later
// windows.
func application(seed uint64) []stored {
	r := rand.New(rand.NewPCG(seed, 0))
	now := time.Now()
	var all []stored
	for trace := range byte(200) {
		start := now.Add(-time.Duration(r.Int64N(int64(time.Hour))))
		if r.IntN(3) == 0 {
			start = now.Add(-time.Hour / 2).Add(time.Duration(r.IntN(20)) * time.Microsecond) // many at the same time
		}
		for id := range byte(1 + r.IntN(8)) {
			all = append(all, stored{trace, id + 1, string(rune('a' + r.IntN(3))), start})
			start = start.Add(time.Duration(r.Int64N(int64(30 * time.Second))))
		}
	}
	r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}

// Every trace is accepted once and complete, with any limit on responses: when found by several services or in several
// windows, while catching up and live.
func TestEachTraceOnce(t *testing.T) {
	for seed := range uint64(5) {
		for _, o := range []Options{
			{},
			{MaxTraces: 10},
			{Services: []string{"a", "b", "c"}, Interval: time.Minute, Lag: 2 * time.Minute},
		} {
			synctest.Test(t, func(t *testing.T) {
				from, to := &jaeger{spans: application(seed)}, &intake{}
				if o.MaxTraces > 0 { // fewer at one time than MaxTraces
					from.spans = slices.DeleteFunc(from.spans, func(s stored) bool { return s.trace%16 != 0 })
				}
				o.Lookback = time.Hour
				c := pull(t, from, to, &positions{}, o, 10*time.Minute)
				once(t, from, to, nil)
				if c.Incomplete.Load() != 0 || int(c.Spans.Load()) != len(from.spans) || c.Traces.Load() < 10 {
					t.Errorf("%d traces, %d spans of %d, %d cut",
						c.Traces.Load(), c.Spans.Load(), len(from.spans), c.Incomplete.Load())
				}
			})
		}
	}
}

// If services are configured, only traces with spans of these services are accepted, each once.
func TestOnlyNamedServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &jaeger{spans: application(7)}, &intake{}
		pull(t, from, to, &positions{}, Options{Services: []string{"a"}, Lookback: 2 * time.Hour}, 10*time.Minute)
		others := make(map[byte]int)
		for _, s := range from.spans {
			others[s.trace] = 0
		}
		for _, s := range from.spans {
			if s.service == "a" {
				others[s.trace] = 1
			}
		}
		once(t, from, to, others)
	})
}

// Windows lag behind now, so that a trace whose spans reach Jaeger late is accepted when complete, and soon afterwards.
func TestLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		from := &jaeger{
			spans:   []stored{{1, 1, "a", now.Add(time.Minute)}, {1, 2, "b", now.Add(time.Minute + time.Second)}},
			arrived: func(s stored) time.Time { return s.start.Add(time.Duration(s.id) * 10 * time.Second) },
		}
		to := &intake{}
		pull(t, from, to, &positions{}, Options{}, 5*time.Minute)
		once(t, from, to, nil)
		if wait := to.last.Sub(now.Add(time.Minute)); wait > 50*time.Second {
			t.Errorf("taken after %v", wait)
		}
	})
}

// A window that is too short to halve is logged as incomplete; the traces found are accepted.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &jaeger{}, &intake{}
		for i := range byte(20) {
			from.spans = append(from.spans, stored{i, 1, "a", time.Now().Add(-time.Minute)})
		}
		c := pull(t, from, to, &positions{}, Options{MaxTraces: 10, Lookback: time.Hour}, time.Minute)
		if c.Incomplete.Load() == 0 || len(to.spans) != 10 {
			t.Errorf("%d incomplete, %d taken", c.Incomplete.Load(), len(to.spans))
		}
	})
}

// A response that is too large is queried in parts.
func TestLargeResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &jaeger{large: 12}, &intake{}
		for i := range byte(100) {
			for id := range byte(3) {
				from.spans = append(from.spans,
					stored{i, id, "a", time.Now().Add(-time.Hour).Add(time.Duration(i) * 100 * time.Millisecond)})
			}
		}
		c := pull(t, from, to, &positions{}, Options{Lookback: 2 * time.Hour}, 10*time.Minute)
		once(t, from, to, nil)
		if c.Incomplete.Load() != 0 || c.Failed.Load() != 0 {
			t.Errorf("%d incomplete, %d failed", c.Incomplete.Load(), c.Failed.Load())
		}
	})
}

// While Jaeger is down, the fetcher backs off; afterwards no trace is missing.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &jaeger{spans: application(3), fails: 12}, &intake{}
		c := pull(t, from, to, &positions{}, Options{Lookback: time.Hour}, 30*time.Minute)
		once(t, from, to, nil)
		if c.Failed.Load() != 12 {
			t.Errorf("%d failed", c.Failed.Load())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		from := &jaeger{fails: 1 << 30}
		pull(t, from, &intake{}, &positions{}, Options{}, time.Hour)
		if from.asked < 60 || from.asked > 100 {
			t.Errorf("asked %d times in an hour", from.asked)
		}
	})
}

// Unreadable windows are shortened, skipped and logged.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &jaeger{spans: application(4), bad: time.Now().Add(-20 * time.Minute)}, &intake{}
		at := &positions{}
		missing := map[byte]bool{250: true}
		from.spans = append(from.spans, stored{250, 1, "a", from.bad.Add(time.Microsecond)})
		for _, s := range from.spans {
			if d := s.start.Sub(from.bad).Abs(); d < time.Second {
				missing[s.trace] = true
			}
		}
		c := pull(t, from, to, at, Options{Lookback: time.Hour}, 30*time.Minute)
		for _, s := range from.spans {
			if _, near := missing[s.trace]; !near && to.spans[[2]byte{s.trace, s.id}] == 0 {
				t.Errorf("trace %d is missing; it starts %v from the unreadable data", s.trace, s.start.Sub(from.bad))
			}
		}
		if c.Incomplete.Load() != 1 || time.Since(at.through) > time.Minute {
			t.Errorf("%d incomplete, fetched through %v ago", c.Incomplete.Load(), time.Since(at.through))
		}
	})
}

// An overloaded intake gets the same request again until it accepts it.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &jaeger{spans: []stored{{1, 1, "a", time.Now().Add(-time.Minute)}}}
		busy := refusal.New(refusal.Overloaded, "busy", "").Later(20 * time.Second)
		to := &intake{errs: []error{busy, busy, busy}}
		pull(t, from, to, &positions{}, Options{Lookback: time.Hour}, 10*time.Minute)
		once(t, from, to, nil)
		if from.asked > 2*200 {
			t.Errorf("Jaeger was asked %d times", from.asked)
		}
	})
}

// Fetching continues at the saved position after a restart. Only the unfinished window is fetched again.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := application(5)
		at := &positions{}
		to := &intake{}
		for range 8 {
			pull(t, &jaeger{spans: spans}, to, at, Options{Lookback: time.Hour}, 2*time.Second)
		}
		time.Sleep(time.Hour)
		later := &jaeger{spans: append(spans, stored{250, 1, "a", time.Now().Add(-time.Minute)})}
		pull(t, later, to, at, Options{}, 20*time.Second)
		once(t, later, to, nil)
	})
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		spans := []stored{{1, 1, "a", now.Add(-55 * time.Minute)}, {2, 1, "a", now.Add(-40 * time.Minute)}}
		from, to := &jaeger{spans: spans}, &intake{}
		// The sixth window contains trace 1 and isn't saved.
		at := &positions{errs: []error{nil, nil, nil, nil, nil, errDown}}
		pull(t, from, to, at, Options{Lookback: time.Hour}, time.Minute)
		once(t, from, to, map[byte]int{1: 2})
	})
}

// The window is fetched again after an error of the intake.
func TestIntakeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &jaeger{spans: []stored{{1, 1, "a", time.Now().Add(-time.Minute)}}}
		to := &intake{errs: []error{errDown}}
		pull(t, from, to, &positions{}, Options{Lookback: time.Hour}, 10*time.Minute)
		once(t, from, to, nil)
	})
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{},
		{URL: "jaeger:16686"},
		{URL: "ftp://jaeger"},
		{URL: "http://jaeger", Protocol: "thrift"},
		{URL: "http://"},
	} {
		if p, err := New(&intake{}, &positions{}, o); err == nil || p != nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// The window of a trace doesn't depend on the order of services.
func TestFirstSpanDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boundary := time.Now().Add(-30 * time.Minute)
		var spans []stored
		for i := range byte(8) {
			at := boundary.Add(time.Duration(int(i)-4) * time.Microsecond)
			spans = append(spans, stored{i, 1, "b", at}, stored{i, 2, "a", at.Add(2 * time.Microsecond)})
		}
		slices.SortFunc(spans, func(x, y stored) int { return cmp.Compare(y.start.UnixNano(), x.start.UnixNano()) })
		from, to := &jaeger{spans: spans}, &intake{}
		pull(t, from, to, &positions{through: boundary.Add(-time.Minute)}, Options{}, 10*time.Minute)
		once(t, from, to, nil)
	})
}

// The name of a server in logs and metrics contains no secrets from its URL.
func TestName(t *testing.T) {
	for _, secrets := range []string{"geheim@", "u:geheim@", ""} {
		p, err := New(&intake{}, &positions{}, Options{URL: "http://" + secrets + "jaeger:16686/q?key=geheim"})
		if err != nil {
			t.Fatal(err)
		}
		if p.Name() != "http://jaeger:16686/q" {
			t.Errorf("name %s", p.Name())
		}
	}
}
