package benchreport

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/bench/eval/recorded"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// sample returns a report about two cases: one located, and one without a problem.
func sample() *recorded.ChoiceReport {
	cases := []recorded.ChoiceResult{
		{
			Name:     "a",
			Fault:    "slow",
			Traces:   137,
			Recorded: 9,
			Raised:   new(11),
			Repeated: true,
			Status:   "located",
			Rank:     new(1),
			Visible:  true,
			Slices:   15,
			Suspects: []string{"cart", "shop"},
			Ranking: []recorded.ChoiceEntry{
				{Service: "shop", Operation: "Cart.Get", Kind: "client", Callee: "cart", Share: 0.75},
				{Service: "shop", Operation: "GET /cart", Kind: "server", Baseline: true, Share: 0.25},
			},
			Executed: 40,
			Enabled:  10,
			Requests: 220,
			SpanHits: 330,
			Target:   recorded.Target{Service: "cart"},
		},
		{
			Name:     "b",
			Fault:    "lost",
			Traces:   32,
			Recorded: 2,
			Suspects: []string{},
			Ranking:  []recorded.ChoiceEntry{},
			Slices:   72,
			Executed: 39,
			Requests: 1100,
			Target:   recorded.Target{Service: "ads", Operation: "Get"},
		},
	}
	adaptive := recorded.ChoiceSum{
		Count:          2,
		Top1:           0.5,
		Top3:           0.5,
		Visible:        0.5,
		Raised:         0.5,
		EnabledMedian:  0.25,
		SlicesMedian:   15,
		SpanHitsMedian: 1500,
	}
	slow, lost := adaptive, recorded.ChoiceSum{
		Count: 1, EnabledMedian: eval.None(), SlicesMedian: eval.None(), SpanHitsMedian: eval.None(),
	}
	slow.Count, slow.Top1, slow.Top3, slow.Visible, slow.Raised = 1, 1, 1, 1, 1
	return &recorded.ChoiceReport{
		Baseline: recorded.Services, Tracepoints: 40, History: 1758, FalseAlarms: 1, ControlSlices: 182,
		Strategies: map[string]*recorded.ChoiceScore{
			"adaptive": {
				ChoiceSum: adaptive, ByFault: map[string]recorded.ChoiceSum{"slow": slow, "lost": lost}, Cases: cases,
			},
			recorded.NoStrategy: {ChoiceSum: recorded.ChoiceSum{Count: 2}},
		},
	}
}

func TestChoice(t *testing.T) {
	r := sample()
	for name, write := range map[string]func(io.Writer) error{
		"choice.txt":  func(w io.Writer) error { return ChoiceTable(w, r) },
		"choice.json": func(w io.Writer) error { return JSON(w, r) },
		"choice.csv":  func(w io.Writer) error { return ChoiceCSV(w, r) },
		"choice.svg":  func(w io.Writer) error { return ChoiceSVG(w, r) },
	} {
		var got strings.Builder
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name)
		if *rewrite {
			if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
