package tracetext_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// drawText returns a random trace in text form that uses every optional word.
func drawText(t *rapid.T) string {
	var out strings.Builder
	depth := 0
	for i := range rapid.IntRange(1, 8).Draw(t, "spans") {
		depth = rapid.IntRange(0, min(depth+1, i)).Draw(t, "depth")
		start := rapid.Int64Range(-5, 100).Draw(t, "start")
		fmt.Fprintf(&out, "%s%x %s %s %s %d..%d", strings.Repeat("  ", depth), i+10,
			rapid.SampledFrom([]string{"shop", `"my shop"`, `""`}).Draw(t, "service"),
			rapid.SampledFrom([]string{`"GET /cart/{}"`, "GET/77", "get-0badcafe1", "v2"}).Draw(t, "name"),
			rapid.SampledFrom([]string{"server", "client", "internal", "unspecified"}).Draw(t, "kind"),
			start, start+rapid.Int64Range(-5, 100).Draw(t, "duration"))
		for _, word := range []string{
			"parent=ff", "parent=a", "host=h1", "tp=p1", "remote", "error", "join=a",
			"join=ff", "k=1.5", "k=x", `"a b"="c d"`, "n=NaN", "e=",
		} {
			if rapid.IntRange(0, 5).Draw(t, "has "+word) == 5 {
				out.WriteString(" " + word)
			}
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table trace.Table
		first, err := tracetext.Parse(drawText(t), &table)
		if err != nil {
			t.Fatal(err)
		}
		text := tracetext.Format(first, &table)
		second, err := tracetext.Parse(text, &table)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if diff := cmp.Diff(text, tracetext.Format(second, &table)); diff != "" {
			t.Fatal(diff)
		}
		if len(first.Spans) != len(second.Spans) || len(first.Attrs) != len(second.Attrs) ||
			len(first.Joins) != len(second.Joins) {
			t.Fatalf("the round trip lost spans, attributes or joins of\n%s", text)
		}
	})
}

func TestFormat(t *testing.T) {
	const text = `
# A comment, then durations, indentation and an orphan.
a shop "GET /cart/17" server 0..10ms
  b shop Cart.Get client 1ms..5ms host=x size=7 tenant=gold
    c cart Get server 2ms..4ms tp=p join=a
  d shop Render internal 6ms..9ms error remote
e db query client 20..30 parent=ff
`
	const want = `a shop "GET /cart/{}" server 0..10000000
  b shop Cart.Get client 1000000..5000000 host=x size=7 tenant=gold
    c cart Get server 2000000..4000000 tp=p join=a
  d shop Render internal 6000000..9000000 remote error
e db query client 20..30 parent=ff
`
	var table trace.Table
	parsed, err := tracetext.Parse(text, &table)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, tracetext.Format(parsed, &table)); diff != "" {
		t.Error(diff)
	}
}

// Format must not lose spans on a cycle of parents or copies of a span.
func TestFormatWritesEverySpan(t *testing.T) {
	const text = "a s x server 0..9 parent=b\nb s x client 1..8 parent=a\nc s x client 2..3 parent=c\n" +
		"d s y server 0..1\nd s y server 0..2\n  e s z client 0..1\n"
	var table trace.Table
	parsed, err := tracetext.Parse(text, &table)
	if err != nil {
		t.Fatal(err)
	}
	got := tracetext.Format(parsed, &table)
	if n := strings.Count(got, "\n"); n != len(parsed.Spans) {
		t.Errorf("%d of %d spans:\n%s", n, len(parsed.Spans), got)
	}
}

func TestParseErrors(t *testing.T) {
	for _, text := range []string{
		"a shop GET", "a shop GET server", "a shop GET waiter 0..1", "a shop GET server 0-1",
		"a shop GET server 0..soon",
		"a shop GET server x..1", `a shop "GET server 0..1`, "a shop GET server 0..1 strange",
	} {
		var table trace.Table
		if parsed, err := tracetext.Parse("# first\n"+text, &table); !errors.Is(err, tracetext.ErrSyntax) ||
			parsed != nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v, %v", text, parsed, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a shop GET server 0..10\n  b shop x client 1..2 k=v\n")
	f.Fuzz(func(t *testing.T, text string) {
		var table trace.Table
		parsed, err := tracetext.Parse(text, &table)
		if (err == nil) != (parsed != nil) {
			t.Fatalf("%v, %v", parsed, err)
		}
		if err == nil {
			tracetext.Format(parsed, &table)
		}
	})
}
