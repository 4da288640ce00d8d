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

func TestSeriesIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		origin := rapid.Int64Range(0, 3000).Draw(t, "origin") * tick
		ats := rapid.SliceOfN(rapid.Int64Range(0, 2200*tick), 1, 60).Draw(t, "at")
		var whole, reversed series
		for i := range ats {
			add(&whole, origin+ats[i], 7)
			add(&reversed, origin+ats[len(ats)-1-i], 7)
		}
		if !bytes.Equal(encodedSeries(whole), encodedSeries(reversed)) {
			t.Fatalf("in reverse order %v\nwant             %v", reversed, whole)
		}
		decoded, rest, err := stats.DecodeSeries[stats.Moments, *stats.Moments](encodedSeries(whole),
			stats.DecodeMoments)
		if err != nil || len(rest) > 0 || !bytes.Equal(encodedSeries(decoded), encodedSeries(whole)) {
			t.Fatalf("decoded %v, rest %v, %v, want %v", decoded, rest, err, whole)
		}
	})
}

// retained is the minimum number of ticks that data is kept. It is dropped after twice as many at the latest.
const retained = int64(512)

func TestSeriesBuckets(t *testing.T) {
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
				t.Fatalf("tick %d: bucket from %d, want %d", i, b.From, end)
			}
			ticks := uint64(b.To-b.From) / uint64(tick)
			if b.From >= origin*tick && b.Value.N != ticks {
				t.Fatalf("tick %d: bucket with %d values, want %d", i, b.Value.N, ticks)
			}
			if age := now - b.To; b.To-b.From > 2*age+4*tick {
				t.Fatalf("tick %d: bucket of width %v at age %v", i, time.Duration(b.To-b.From), time.Duration(age))
			}
			n++
			total += b.Value.N
			end = b.To
		}
		if n > stats.MaxBuckets || stats.MaxBuckets != 10 || end != now {
			t.Fatalf("tick %d: %d buckets until %d, want at most 10 until %d", i, n, end, now)
		}
		if want := min(i+1, retained); total < uint64(want) ||
			total > 2*uint64(retained) {
			t.Fatalf("tick %d: %d ticks kept, want %d, at most twice the retention", i, total, want)
		}
	}
}

func TestSeriesRetention(t *testing.T) {
	var s series
	add(&s, 5000*tick, 1)
	if s.At(3000*tick) != nil || s.At(-1) != nil {
		t.Error("At() returned a bucket for a time that is too old")
	}
	s.Advance(9000 * tick)
	for b := range s.Buckets() {
		t.Errorf("bucket from %d with %d values, want none", b.From, b.Value.N)
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
		checkDecoded(t, b, rest, err, bytes.Equal(encodedSeries(s), encodedSeries(series{})),
			func([]byte) []byte { return encodedSeries(s) })
		for b := range s.Buckets() {
			if b.From >= b.To {
				t.Errorf("bucket [%d, %d), want a positive width", b.From, b.To)
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
