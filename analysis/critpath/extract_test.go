package critpath_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/oracle"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// optionsFrom derives options from the bits of n.
func optionsFrom(n int) critpath.Options {
	o := critpath.Options{
		IgnoreAsync: n&1 != 0, LatestStart: n&2 != 0, StrictTouching: n&4 != 0,
	}
	if n&32 != 0 {
		o.OverlapTolerance = 0.2
	}
	if n&64 != 0 {
		o.SeeThrough = []trace.Symbol{1}
	}
	return o
}

// tester compares the extractor with the oracle. It reuses extractors, so that state left by one trace can show in the
// next.
type tester struct {
	extractors map[string]*critpath.Extractor // by options
	observer   observation.Observer
	into       observation.Observation
}

var ignoreEmpty = cmp.Options{cmpopts.EquateEmpty(), ignoreShape}

// ignoreShape ignores a field that only identifies observations whose other fields are alike.
var ignoreShape = cmpopts.IgnoreFields(observation.Observation{}, "Shape")

// check compares the paths and observations of tr with the oracle's.
func (x *tester) check(t interface{ Fatalf(string, ...any) }, o critpath.Options, tr *trace.Trace) {
	key := fmt.Sprint(o)
	e := x.extractors[key]
	if e == nil {
		if x.extractors == nil {
			x.extractors = map[string]*critpath.Extractor{}
		}
		e = critpath.NewExtractor(o)
		x.extractors[key] = e
	}
	p, w := e.Extract(tr), oracle.Extract(o, tr)
	if diff := cmp.Diff(w.Describe(), oracle.Describe(p), ignoreEmpty); diff != "" {
		t.Fatalf("options %+v, trace\n%s(-oracle +extractor)\n%s", o, dump(tr), diff)
	}
	for i := range p.Roots {
		if p.Duration(&p.Roots[i]) <= 0 {
			continue
		}
		x.observer.Observe(p, i, &x.into)
		if diff := cmp.Diff(w.Observe(i), &x.into, ignoreEmpty); diff != "" {
			t.Fatalf("options %+v, root %d of trace\n%s(-oracle +observer)\n%s", o, i, dump(tr), diff)
		}
	}
}

func dump(t *trace.Trace) string {
	var b strings.Builder
	for i, s := range t.Spans {
		fmt.Fprintf(&b, "%d: id %d parent %d %d..%d %s service %d host %d tp %d flags %d address %d op %x\n",
			i, uint64(s.ID), uint64(s.Parent), s.Start, s.End,
			s.Kind, s.Service, s.Host, s.Tracepoint, s.Flags, s.Address, uint64(s.Op))
	}
	fmt.Fprintf(&b, "joins %v attrs %v\n", t.Joins, t.Attrs)
	return b.String()
}

// FuzzExtract compares the extractor with the oracle on fuzzed traces.
func FuzzExtract(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x05 some spans below each other, some of them of tracepoints, one joined by another"))
	var x tester
	f.Fuzz(func(t *testing.T, data []byte) {
		options := 0
		if len(data) > 0 {
			options, data = int(data[0]), data[1:]
		}
		x.check(t, optionsFrom(options), tracetest.FromBytes(tracetest.Everything, data))
	})
}

// TestOracle compares the extractor with the oracle on random traces of each shape.
func TestOracle(t *testing.T) {
	for name, shape := range map[string]tracetest.Shape{
		"everything": tracetest.Everything, "plain": {}, "skewed": {Skewed: true}, "joins": {Joins: true, Spans: 6},
		"large": {Spans: 60, Joins: true},
	} {
		t.Run(name, func(t *testing.T) {
			var x tester
			rapid.Check(t, func(t *rapid.T) {
				x.check(t, optionsFrom(rapid.IntRange(0, 127).Draw(t, "options")),
					tracetest.Traces(shape).Draw(t, "trace"))
			})
		})
	}
}
