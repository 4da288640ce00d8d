package backtest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/trace"
)

// recorded returns spans of several hosts in the order of arrival. Each host sends one span per second. Each span is a
// trace of its own, and shift changes its time.
func recorded(hosts int, length time.Duration, shift func(host int, at time.Duration) time.Duration) *ingest.Batch {
	b := &ingest.Batch{}
	for at := time.Duration(0); at < length; at += time.Second {
		for host := range hosts {
			end := (1_790_000_000 * second).Add(at + shift(host, at))
			n := len(b.Spans) + 1
			b.Spans = append(b.Spans,
				trace.Span{ID: trace.SpanID(n), Start: end - second/10, End: end, Host: trace.Symbol(host + 1)})
			b.Traces = append(b.Traces, trace.ID{13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
		}
	}
	return b
}

// Spans that end long after they arrived are found, and no other spans.
func TestFastClocks(t *testing.T) {
	const length = 2 * time.Hour
	random := rand.New(rand.NewPCG(1, 2))
	of := func(wrong ...int) func(int, time.Duration) time.Duration {
		return func(host int, at time.Duration) time.Duration {
			for _, w := range wrong {
				if w == host && at >= length/2 {
					return time.Hour
				}
			}
			return 0
		}
	}
	for name, c := range map[string]struct {
		hosts int
		shift func(host int, at time.Duration) time.Duration
		want  int
	}{
		"all are right": {hosts: 6, shift: of()},
		"one of three":  {hosts: 3, shift: of(1), want: int(length/2) / 1e9},
		"two of six":    {hosts: 6, shift: of(1, 2), want: 2 * int(length/2) / 1e9},
		"one of two":    {hosts: 2, shift: of(1)}, // no majority
		"all: a pause":  {hosts: 3, shift: of(0, 1, 2)},
		"one is slow": {
			hosts: 3,
			shift: func(host int, _ time.Duration) time.Duration { return -time.Duration(host/2) * time.Hour },
		},
		"one is minutes fast": {
			hosts: 3,
			shift: func(host int, _ time.Duration) time.Duration { return time.Duration(host/2) * 5 * time.Minute },
		},
		"in no order": {
			hosts: 6,
			shift: func(int, time.Duration) time.Duration {
				return time.Duration(random.Int64N(int64(48 * time.Hour)))
			},
		},
		"the last is right": {hosts: 3, shift: func(_ int, at time.Duration) time.Duration { return length - 2*at }},
		"a few are very late": {
			hosts: 3,
			shift: func(int, time.Duration) time.Duration {
				return -time.Duration(random.Int64N(10)/9) * 30 * time.Minute
			},
		},
		"one has a wrong year": {
			hosts: 3,
			shift: func(host int, _ time.Duration) time.Duration { return time.Duration(host/2) * 9000 * time.Hour },
			want:  int(length) / 1e9,
		},
		"at the end of the file": {hosts: 3, shift: func(host int, at time.Duration) time.Duration {
			return max(0, time.Duration(host/2)*(at-length+3*time.Second)) * 3600
		}, want: 2},
	} {
		b := recorded(c.hosts, length, c.shift)
		var a arrivals
		for range 2 { // a second file with the same content changes nothing
			a.add(name, b)
			a.add("another file", &ingest.Batch{})
		}
		a.end()
		if len(a.fast) != c.want {
			t.Errorf("%s: %d traces from fast clocks, want %d", name, len(a.fast), c.want)
		}
		for i := range b.Spans {
			at, found := a.fast[b.Traces[i]]
			if real := (1_790_000_000 * second).Add(time.Duration(i/c.hosts) * time.Second); found &&
				(at.Sub(real) < -clockTolerance || at.Sub(real) > clockTolerance) {
				t.Fatalf("%s: a span that arrived at %d is dated %d", name, real, at)
			}
		}
	}
}

// The first batches of some hosts after a pause of the recording don't count as having fast clocks.
func TestPauseInBatches(t *testing.T) {
	for _, batch := range []int{10, 100, 800} {
		var a arrivals
		b := &ingest.Batch{}
		now := 1_790_000_000 * second
		for round := range 12 {
			if round == 6 {
				now = now.Add(time.Hour)
			}
			for host := range 20 {
				for range batch {
					n := len(b.Spans) + 1
					b.Spans = append(b.Spans,
						trace.Span{ID: trace.SpanID(n), Start: now - second/10, End: now, Host: trace.Symbol(host + 1)})
					b.Traces = append(b.Traces,
						trace.ID{12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
				}
			}
			now = now.Add(time.Second)
		}
		a.add("file", b)
		a.end()
		if len(a.fast) > 0 {
			t.Errorf("batches of %d: %d of %d traces from fast clocks, want none", batch, len(a.fast), len(b.Spans))
		}
	}
}

// A trace from a fast clock is played when it arrived. Its other spans tell when that was, or the spans around it in
// the file.
func TestPlayFastClock(t *testing.T) {
	const now, count = 1_790_000_000, 600
	var lines strings.Builder
	for i := range count {
		for k, service := range []string{"web", "cart", "stock"} {
			at, id := now+2*i, i
			if service == "stock" && i >= count/2 {
				at += 3600
			}
			if service == "stock" && i%2 == 0 {
				id += count // the only span of its trace
			}
			lines.WriteString(oneSpan(service, id+1, k+1, at))
		}
	}
	path := filepath.Join(t.TempDir(), "traces.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Files(t.Context(), []string{path}, nil, file.Options{},
		Options{Core: engine.DefaultOptions(), Assembly: assemble.DefaultOnlineOptions()})
	if err != nil {
		t.Fatal(err)
	}
	if want := (now+2*(count-1))*second + 1; r.Traces != count+count/2 || r.Misdated != 0 || r.From != now*second ||
		r.To != want {
		t.Errorf("%d traces and %d misdated until %d, want %d and 0 until %d",
			r.Traces, r.Misdated, r.To, count+count/2, want)
	}
}
