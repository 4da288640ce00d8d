package describe

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/onetrace"
	"github.com/sibyl-trace/sibyl/trace"
)

func TestExplanation(t *testing.T) {
	s := newShop()
	n := s.names()
	bank, payment := s.table.Symbol("bank"), s.table.Symbol("payment")
	type suspects = []onetrace.CallSuspect
	slow := func(service trace.Symbol, op trace.Op, part onetrace.Part, excess float64) onetrace.CallSuspect {
		return onetrace.CallSuspect{
			Service: service,
			Op:      op,
			Reason:  onetrace.Slow,
			Part:    part,
			Excess:  excess,
			Calls:   1,
		}
	}
	for _, c := range []struct {
		name string
		of   onetrace.Explanation
		want string
	}{
		{
			"slow",
			onetrace.Explanation{Duration: 1.2e9, Usual: 388e6, Limit: 500e6, Suspects: suspects{
				slow(bank, s.bank, onetrace.OwnPart, 640e6), slow(bank, s.bank, onetrace.InPart, 120e6),
				slow(payment, s.charge, onetrace.OutPart, 30e6), slow(payment, s.pay, onetrace.CallsPart, 20e6),
			}},
			"This request took 812 ms longer than such requests usually do (1.2 s instead of 388 ms); " +
				"640 ms of it in bank POST /charge " +
				"(own time), 120 ms on the wire to bank POST /charge, 30 ms on the wire from payment → bank " +
				"POST /charge.",
		},
		{
			"more than all: other steps are faster",
			onetrace.Explanation{
				Duration: 1.2e9, Usual: 388e6, Limit: 500e6,
				Suspects: suspects{slow(bank, s.bank, onetrace.InPart, 820e6)},
			},
			"This request took 812 ms longer than such requests usually do (1.2 s instead of 388 ms); " +
				"all of it on the wire to bank POST /charge.",
		},
		{
			"usual",
			onetrace.Explanation{
				Duration: 400e6, Usual: 388e6, Limit: 500e6,
				Suspects: suspects{slow(payment, s.pay, onetrace.CallsPart, 20e6)},
			},
			"This request took 400 ms, within the usual range of such requests (median 388 ms); " +
				"20 ms more than usual in additional " +
				"calls of payment Pay.",
		},
		{
			"short and failed",
			onetrace.Explanation{Duration: 100e6, Usual: 388e6, Limit: 500e6, Suspects: suspects{
				{Service: payment, Op: s.pay, Reason: onetrace.Failed, Calls: 1},
				{
					Service: payment,
					Op:      s.charge,
					Caller:  s.pay,
					Missing: []trace.Op{s.charge, s.bank, s.index, s.rendered},
					Reason:  onetrace.Missing,
					Calls:   1,
				},
				{
					Service:    bank,
					Op:         s.bank,
					Unanswered: true,
					Reason:     onetrace.Missing,
					Calls:      1,
				},
				{Service: bank, Op: s.bank, Reason: onetrace.New, Calls: 1},
			}},
			"This request took 288 ms less than such requests usually do (100 ms instead of 388 ms). " +
				"payment Pay fails, although such " +
				"calls usually do not. payment Pay does not call payment → bank POST /charge, bank POST /charge, " +
				"shop GET / and 1 other, " +
				"although it usually does. bank POST /charge does not answer.",
		},
		{
			"unknown",
			onetrace.Explanation{Duration: 100e6, Usual: math.NaN(), Limit: math.NaN(), Suspects: suspects{
				{
					Service: payment,
					Op:      s.pay,
					Caller:  s.pay,
					Reason:  onetrace.Missing,
					Calls:   1,
				},
				slow(s.table.Symbol("db"), s.charge, onetrace.InPart, 20e6),
			}},
			"This request took 100 ms; no normal trace has a request of its type, so new calls are no evidence; " +
				"20 ms more than usual in " +
				"db, called by payment → bank POST /charge. payment Pay makes none of the calls that usually follow.",
		},
		{
			"new",
			onetrace.Explanation{
				Duration: 388e6, Usual: 388e6, Limit: 388e6,
				Suspects: suspects{{Service: bank, Op: s.bank, Reason: onetrace.New, Calls: 1}},
			},
			"This request took 388 ms, within the usual range of such requests (median 388 ms). " +
				"bank POST /charge is called, although " +
				"no normal trace calls it.",
		},
		{
			"nothing",
			onetrace.Explanation{Usual: math.NaN(), Limit: math.NaN()},
			"This request took 0 ns; no normal trace has a request of its type, so new calls are no evidence.",
		},
	} {
		x := NewTraceExplanation(n, trace.ID{15: 1}, &c.of)
		if diff := cmp.Diff(c.want, x.Sentence().String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestExplanationJSON(t *testing.T) {
	s := newShop()
	x := NewTraceExplanation(s.names(), trace.ID{15: 1},
		&onetrace.Explanation{Duration: 100.4, Usual: 60.6, Limit: 80, Suspects: []onetrace.CallSuspect{
			{
				Service: s.table.Symbol("payment"),
				Op:      s.charge,
				Reason:  onetrace.Slow,
				Part:    onetrace.OutPart,
				Excess:  39.6,
				Calls:   2,
				Span:    7,
			},
			{
				Service: s.table.Symbol("payment"),
				Op:      s.charge,
				Reason:  onetrace.Missing,
				Caller:  s.pay,
				Missing: []trace.Op{s.charge},
				Calls:   1,
				Span:    8,
			},
		}})
	got, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	const step = `"service":"payment","operation":"POST","kind":"client",` +
		`"target":{"service":"bank","operation":"POST /charge","external":false}`
	const want = `{"trace_id":"00000000000000000000000000000001","excess_ns":40,"duration_ns":100,"usual_ns":61,` +
		`"suspects":[` +
		`{` + step + `,"excess_ns":40,"reason":"slow","part":"out","calls":2,"span_id":"0000000000000007"},` +
		`{` + step + `,"excess_ns":0,"reason":"missing","calls":1,"span_id":"0000000000000008",` +
		`"caller":{"service":"payment","operation":"Pay","kind":"server"},"missing":[{` + step + `}]}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
