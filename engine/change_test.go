package engine_test

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// changes returns one change of each kind.
func changes() map[string]engine.Change {
	options := engine.DefaultOptions()
	settings := options.Settings()
	settings.Strategy, settings.Retention, settings.Budget.Service.CPU = "binary", time.Hour, 0.5
	settings.Objectives = []incident.Objective{
		{Name: "n", Entry: "shop", Below: time.Second, Percentile: 99.9},
		{Entry: "shop GET /", Errors: 0.001},
	}
	tracepoint := search.Announced{
		ID:     "a",
		Name:   "b",
		Span:   trace.Server,
		Parent: "c",
		Owner:  "d",
		Layer:  cct.Kernel,
		Kind:   cct.ProbePoint,
		Cost:   time.Microsecond,
		Bytes:  7,
	}
	return map[string]engine.Change{
		"settings": {Settings: &settings},
		"override": {Override: &search.Override{
			Tracepoint: 1 << 63,
			Kind:       search.Forbid,
			Forced:     true,
			Until:      9,
			By:         "someone",
		}},
		"withdraw": {Withdraw: 7, By: "someone"},
		"steer": {Steer: &search.Steering{
			Subject: search.OfIncident(1 << 63), Ended: true, Until: 9, By: "someone", Reason: "known",
		}},
		"accept": {Accept: 1 << 63, By: "someone"},
		"report": {Report: engine.NewReport(engine.Annotation{
			At:     7,
			End:    9,
			Kind:   engine.KindFlag,
			Source: engine.SourceGitHub,
			Text:   "on",
			Link:   "https://example.org",
			Tags:   []string{"web"},
		}, "shop", "1.8")},
		"feedback": {Feedback: &search.Feedback{
			Catalogues:  []search.Catalogue{{Service: "shop", Tracepoints: []search.Announced{tracepoint}}},
			Costs:       []search.Cost{{ID: "a", CPU: time.Microsecond, Bytes: 7}},
			Unavailable: []search.Unavailable{{ID: "a", For: time.Minute}},
			Measured:    &search.Measured{Plan: 3, Hits: 0.5, Bytes: 1e300},
			Stacks: []search.Stacks{{
				Service: "shop", Operation: "GET /", Kind: trace.Server, Requests: 3, Time: time.Second,
				Tracepoints: []search.StackTime{{ID: "a", Total: time.Second, Own: time.Millisecond}},
			}},
		}},
	}
}

func TestChangeRoundTrip(t *testing.T) {
	for name, x := range changes() {
		b := x.Append([]byte("head"))
		got, err := engine.DecodeChange(b[4:])
		if diff := cmp.Diff(x, got); err != nil || diff != "" {
			t.Errorf("%s: error %v, %s", name, err, diff)
		}
		if again := got.Append([]byte("head")); !bytes.Equal(again, b) {
			t.Errorf("%s: written again as %q, want %q", name, again, b)
		}
	}
}

// Decoding fails if the bytes hold no change, or a change with values out of range.
func TestDecodeChangeRefuses(t *testing.T) {
	valid := (&engine.Change{Withdraw: 7}).Append(nil)
	announced := func(x search.Announced) engine.Change {
		return engine.Change{
			Feedback: &search.Feedback{Catalogues: []search.Catalogue{{Tracepoints: []search.Announced{x}}}},
		}
	}
	refuses := func(name string, b []byte) {
		t.Helper()
		if x, err := engine.DecodeChange(b); !errors.Is(err, codec.ErrCorrupt) || x != (engine.Change{}) {
			t.Errorf("%s: %+v, error %v, want %v", name, x, err, codec.ErrCorrupt)
		}
	}
	for name, b := range map[string]string{
		"empty": "", "unknown version": "\x02" + string(valid[1:]),
		"truncated": string(valid[:len(valid)-1]), "bytes behind": string(valid) + "\x00",
	} {
		refuses(name, []byte(b))
	}
	for name, x := range map[string]engine.Change{
		"unknown override": {Override: &search.Override{Kind: 3}},
		"unknown subject":  {Steer: &search.Steering{Subject: search.Subject{Kind: 3}}},
		"unknown layer":    announced(search.Announced{Layer: 3}),
		"unknown kind":     announced(search.Announced{Kind: 3}),
		"unknown span":     announced(search.Announced{Span: 6}),
		"unknown owner":    announced(search.Announced{OwnerSpan: 6}),
		"no budget":        {Settings: &engine.Settings{Objectives: []incident.Objective{{Entry: "shop"}}}},
		"two budgets": {
			Settings: &engine.Settings{
				Objectives: []incident.Objective{{Entry: "shop", Errors: 0.1, Below: 1, Percentile: 99}},
			},
		},
		"gate of NaN":        {Settings: &engine.Settings{Gates: incident.Gates{Growth: math.NaN()}}},
		"unknown annotation": {Report: &engine.Report{Annotation: engine.Annotation{Kind: 4}}},
		"unknown source":     {Report: &engine.Report{Annotation: engine.Annotation{Source: 4}}},
		"kind of a sample":   {Feedback: &search.Feedback{Stacks: []search.Stacks{{Kind: trace.Consumer + 1}}}},
		"cost of NaN":        {Feedback: &search.Feedback{Measured: &search.Measured{CPU: math.NaN()}}},
	} {
		refuses(name, x.Append(nil))
	}
}
