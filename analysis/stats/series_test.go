package stats_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

type series = stats.Series[stats.Moments, *stats.Moments]

const tick = int64(stats.Tick)

func appendMoments(b []byte, m *stats.Moments) []byte { return m.AppendBinary(b) }

func encodedSeries(s series) []byte { return s.AppendBinary(nil, appendMoments) }

func add(s *series, ns, x int64) {
	if m := s.At(ns); m != nil {
		m.Add(x)
	}
}

func TestSeriesDependsOnTheSetOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		origin := rapid.Int64Range(0, 3000).Draw(t, "origin") * tick
		ats := rapid.SliceOfN(rapid.Int64Range(0, 2200*tick), 1, 60).Draw(t, "at")
		var whole series
		parts := make([]series, 3)
		for i := range ats {
			add(&whole, origin+ats[i], 7)
			add(&parts[rapid.IntRange(0, 2).Draw(t, "part")], origin+ats[len(ats)-1-i], 7)
		}
		var merged series
		for _, p := range parts {
			merged.Merge(p)
		}
		if !bytes.Equal(encodedSeries(whole), encodedSeries(merged)) {
			t.Fatalf("whole  %v\nmerged %v", whole, merged)
		}
		decoded, rest, err := stats.DecodeSeries[stats.Moments, *stats.Moments](encodedSeries(whole), stats.DecodeMoments)
		if err != nil || len(rest) > 0 || !bytes.Equal(encodedSeries(decoded), encodedSeries(whole)) {
			t.Fatalf("decoded %v, %v", decoded, err)
		}
	})
}

func TestSeriesBucketsAreFewDisjointAndFine(t *testing.T) {
	var s series
	origin := int64(1_790_000_000_000_000_000) / tick
	for i := range int64(3000) {
		add(&s, (origin+i)*tick, 1)
		now := (origin + i + 1) * tick
		var n int
		var total uint64
		end := int64(0)
		for b := range s.Buckets() {
			if n > 0 && b.From != end {
				t.Fatalf("tick %d: bucket from %d after one to %d", i, b.From, end)
			}
			ticks := uint64(b.To-b.From) / uint64(tick)
			if b.From >= origin*tick && b.Value.N != ticks {
				t.Fatalf("tick %d: %d additions in a bucket of %d ticks", i, b.Value.N, ticks)
			}
			if age := now - b.To; b.To-b.From > 2*age+4*tick {
				t.Fatalf("tick %d: bucket of %v at age %v", i, time.Duration(b.To-b.From), time.Duration(age))
			}
			n++
			total += b.Value.N
			end = b.To
		}
		if n > stats.MaxBuckets || stats.MaxBuckets != 10 || end != now {
			t.Fatalf("tick %d: %d buckets, the last to %d, now %d", i, n, end, now)
		}
		if want := min(i+1, int64(stats.Retention)/tick); total < uint64(want) || total > 2*uint64(stats.Retention)/uint64(tick) {
			t.Fatalf("tick %d: %d ticks retained, want at least %d", i, total, want)
		}
	}
}

func TestSeriesDropsWhatIsTooOld(t *testing.T) {
	var s series
	add(&s, 5000*tick, 1)
	if s.At(3000*tick) != nil || s.At(-1) != nil {
		t.Error("accepted what is too old")
	}
	s.Advance(9000 * tick)
	for b := range s.Buckets() {
		t.Errorf("%d left", b.Value.N)
	}
}

func FuzzDecodeSeries(f *testing.F) {
	var s series
	for i := range int64(100) {
		add(&s, i*tick, i)
	}
	f.Add(encodedSeries(s))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, rest, err := stats.DecodeSeries[stats.Moments, *stats.Moments](b, stats.DecodeMoments)
		checkDecoded(t, b, rest, err, bytes.Equal(encodedSeries(s), encodedSeries(series{})), func([]byte) []byte { return encodedSeries(s) })
		for b := range s.Buckets() {
			if b.From >= b.To {
				t.Errorf("bucket from %d to %d", b.From, b.To)
			}
		}
		s.Advance(1 << 50)
	})
}

func BenchmarkSeriesAdd(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	var s series
	for i := int64(0); b.Loop(); i++ {
		add(&s, i*tick/1000, int64(r.IntN(1000)))
	}
}
