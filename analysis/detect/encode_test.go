package detect_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/internal/testkit/transfergen"
	"github.com/sibyl-trace/sibyl/trace"
)

// restarted returns the Detector that continues d after a restart.
func restarted(t rapid.TB, d *detect.Detector, options group.Options) *detect.Detector {
	t.Helper()
	b := d.AppendBinary(nil)
	again, rest, err := detect.Decode(b, d.Groups.Types, d.Groups.Table, options)
	if err != nil || len(rest) > 0 {
		t.Fatalf("decoding leaves %d bytes, error %v", len(rest), err)
	}
	if !bytes.Equal(again.AppendBinary(nil), b) {
		t.Fatal("the encoding differs after decoding")
	}
	return again
}

// restart restarts the Detector of the harness.
func (s *harness) restart(t rapid.TB, options group.Options) {
	s.d = restarted(t, s.d, options)
	s.g = s.d.Groups
}

// variedTraffic plays traffic that exercises all of the state: problems of every kind open and close, groups appear,
// stop and are evicted, edges exceed their bound, and requests have sizes.
func variedTraffic(t testing.TB, restart func(epoch int) bool) (log string, state []byte) {
	options := group.Options{Edges: 3, Groups: 8}
	s := newHarness()
	g := sizeGrouper(group.Rules{Size: requests.BodySize})
	s.use(group.NewGrouper(g.Types, g.Table, options))
	s.options.Renew, s.options.Chronic = 40, detect.Thresholds{CoV: 0.18}
	lines := func(epoch int) []string {
		switch {
		case epoch < 30:
			return []string{"group=a n=30 a=5ms b=2ms c=2ms d=1ms", "group=b n=20 a=5ms"}
		case epoch < 50:
			return []string{"group=a n=30 a=9ms b=2ms d=1ms e=1ms f=2ms g=1ms", "group=b n=20 a=9ms"}
		case epoch < 90:
			return []string{
				"group=a n=30 failed=9 a=5ms b=2ms c=2ms d=1ms", "group=b n=20 a=5ms",
				fmt.Sprintf("group=%c n=2 a=5ms", 'c'+rune(epoch%9)),
			}
		}
		return []string{"group=a n=30 a=5ms b=2ms c=2ms d=1ms", "group=b n=20 a=5ms"}
	}
	var out bytes.Buffer
	for i := range 160 {
		for _, line := range lines(i) {
			r := parseTraffic(&testing.T{}, line)
			for k := range r.n {
				o := s.request(r)
				o.Failed = k < r.failed
				s.g.Observe(o)
				if k == r.n/2 && restart(-i) {
					s.restart(t, options)
				}
			}
		}
		for k, x := range transfergen.Generate(uint64(i), 20, requests.Network()) {
			s.g.Observe(requests.Sized(100*i+k, s.now, x))
		}
		s.now = s.now.Add(epoch)
		s.report(&out, i)
		s.d.Learn(s.now.Add(-5*time.Minute), s.options)
		if restart(i) {
			s.restart(t, options)
		}
	}
	fmt.Fprintf(&out, "%d groups, %d refused, %d evicted\n", s.g.Len(), s.g.Refused, s.g.Evicted)
	return out.String(), s.d.AppendBinary(nil)
}

// A Detector that is restarted, after an epoch or within one, continues unchanged.
func TestDetectorRestarts(t *testing.T) {
	wantLog, want := variedTraffic(t, func(int) bool { return false })
	for _, kind := range []string{"opened request_type slow", "shifted", "chronic", "closed"} {
		if !bytes.Contains([]byte(wantLog), []byte(kind)) {
			t.Errorf("no %q in the log:\n%s", kind, wantLog)
		}
	}
	for name, restart := range map[string]func(epoch int) bool{
		"often": func(epoch int) bool { return epoch%7 == 3 },
		"once":  func(epoch int) bool { return epoch == 45 },
		"amid":  func(epoch int) bool { return epoch == -45 || epoch == -95 },
	} {
		if log, state := variedTraffic(t, restart); log != wantLog || !bytes.Equal(state, want) {
			t.Errorf("%s: state of %d and %d bytes;\n%s\nwithout a restart:\n%s",
				name, len(state), len(want), log, wantLog)
		}
	}
}

func FuzzDecodeDetector(f *testing.F) {
	_, state := variedTraffic(f, func(int) bool { return false })
	f.Add(state)
	f.Add(state[:len(state)/2])
	g := sizeGrouper(group.Rules{Size: requests.BodySize})
	for i, x := range transfergen.Generate(1, 100, requests.Network()) {
		g.Observe(requests.Sized(i, 1, x))
	}
	d := detect.New(g)
	f.Add(d.AppendBinary(nil))
	g.EndEpoch(2e18)
	d.Learn(2e18, detect.DefaultWatchOptions())
	f.Add(d.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		types := &group.RequestTypes{}
		types.Freeze()
		d, rest, err := detect.Decode(b, types, &trace.Table{}, group.Options{})
		if err != nil {
			if d != nil || rest != nil || !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%v with a result", err)
			}
			return
		}
		now, g := trace.Nanos(2e18), d.Groups
		for i := range 60 {
			g.Observe(requests.Plain(1, 1, now.Add(time.Duration(i)), time.Millisecond))
		}
		d.Watch(now, detect.DefaultWatchOptions())
		d.Learn(now, detect.DefaultWatchOptions())
		for _, grp := range g.Groups() {
			g.Summarize(grp)
			grp.Windows()
		}
		if _, _, err := detect.Decode(d.AppendBinary(nil), types, g.Table, group.Options{}); err != nil {
			t.Error(err)
		}
	})
}
