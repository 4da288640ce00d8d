package waterfall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestWaterfall draws traces in their text form.
func TestWaterfall(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, file string) {
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			var table trace.Table
			tr, err := tracetext.Parse(d.Input, &table)
			if err != nil {
				return err.Error()
			}
			o := critpath.DefaultOptions()
			d.MaybeScanArgs(t, "overlap", &o.OverlapTolerance)
			p := critpath.NewExtractor(o).Extract(tr)
			var out bytes.Buffer
			if d.Cmd == "json" {
				err = JSON(&out, p)
			} else {
				width, most := 100, 0
				d.MaybeScanArgs(t, "width", &width)
				d.MaybeScanArgs(t, "most", &most)
				var suspects []string
				d.MaybeScanArgs(t, "suspects", &suspects)
				err = Text(&out, p, &table,
					Options{Style: terminal.Style{Width: width}, Most: most, Suspects: ranks(p, suspects)})
			}
			if err != nil {
				t.Fatal(err)
			}
			return out.String()
		})
	})
}

// ranks returns the ranks of the spans of p by node. ids lists the spans by rank.
func ranks(p *critpath.Path, ids []string) map[int32]int {
	all := make(map[int32]int)
	for node := range p.Nodes {
		if i := slices.Index(ids, strings.TrimLeft(p.Nodes[node].ID.String(), "0")); i >= 0 {
			all[int32(node)] = i + 1
		}
	}
	return all
}

// The waterfalls of a deep and of a wide trace respect the limit of spans.
func TestLarge(t *testing.T) {
	var deep, wide strings.Builder
	wide.WriteString("a s root server 0..1000000\n")
	for i := range 5000 {
		fmt.Fprintf(&deep, "%s%x s op internal %d..%d\n", strings.Repeat(" ", i), i+1, i, 20000-i)
		fmt.Fprintf(&wide, " %x s op client %d..%d\n", i+16, i*100, i*100+50)
	}
	for _, text := range []string{deep.String(), wide.String()} {
		var table trace.Table
		tr, err := tracetext.Parse(text, &table)
		if err != nil {
			t.Fatal(err)
		}
		p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr)
		var out bytes.Buffer
		if err := Text(&out, p, &table, Options{Most: 50}); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "\n"); n > 60 || !strings.Contains(out.String(), "not shown") {
			t.Errorf("%d lines:\n%.2000s", n, out.String())
		}
		var doc map[string]any
		out.Reset()
		if err := JSON(&out, p); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
			t.Error(err)
		}
	}
}

// A coloured waterfall without its escape sequences equals a plain one.
func TestColourOnlyAdds(t *testing.T) {
	var table trace.Table
	tr, err := tracetext.Parse(
		"a shop cart server 0..100\n  b shop get client 10..50\n  c shop put client 60..70 error\n", &table)
	if err != nil {
		t.Fatal(err)
	}
	p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr)
	drawn := func(colour bool) string {
		var out bytes.Buffer
		if err := Text(&out, p, &table, Options{Style: terminal.Style{Width: 90, Colour: colour}}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	painted := drawn(true)
	if !strings.Contains(painted, "\x1b["+terminal.Red+"m█") {
		t.Errorf("no solid part of a bar is red:\n%q", painted)
	}
	for _, attribute := range []string{"0", terminal.Bold, terminal.Dim, terminal.Red, terminal.Yellow} {
		painted = strings.ReplaceAll(painted, "\x1b["+attribute+"m", "")
	}
	if painted != drawn(false) {
		t.Errorf("without escapes:\n%s\nwant\n%s", painted, drawn(false))
	}
}
