package export

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// checkout is a trace whose root takes 100 ns: 50 itself, 40 in db, including 10 in a tracepoint.
const checkout = `
a shop "POST /checkout" server 0..100
  b shop db client 10..50
    c shop parse internal 20..30 tp=shop/parse
  d shop log internal 60..60
  e shop bank client 60..70
`

func critical(t *testing.T) Path {
	t.Helper()
	tr, err := tracetext.Parse(checkout, &trace.Table{})
	if err != nil {
		t.Fatal(err)
	}
	return Of(critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr), 0, "7")
}

func TestOf(t *testing.T) {
	c := critical(t)
	want := []Span{{0xa, 0, 50, 3}, {0xb, 10, 30, 2}, {0xc, 20, 10, 1}, {0xe, 60, 10, 1}}
	if diff := cmp.Diff(want, c.Spans); diff != "" || c.Duration != 100 {
		t.Errorf("duration %d, -want +got\n%s", c.Duration, diff)
	}
}

func TestSpans(t *testing.T) {
	c := critical(t)
	traces := request([]Path{c})
	resource := traces.ResourceSpans().At(0)
	if name, _ := resource.Resource().Attributes().Get("service.name"); name.Str() != "sibyl" {
		t.Errorf("service %s", name.Str())
	}
	spans := resource.ScopeSpans().At(0).Spans()
	if spans.Len() != 4 {
		t.Fatalf("%d spans", spans.Len())
	}
	got := spans.At(1)
	attributes := map[string]any{
		"sibyl.critical_path.exclusive_ns": int64(30),
		"sibyl.critical_path.share":        0.3, "sibyl.critical_path.sections": int64(2),
		"sibyl.critical_path.rank": int64(2), "sibyl.problem": "7",
	}
	if diff := cmp.Diff(attributes, got.Attributes().AsRaw()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got.ParentSpanID().String() != trace.SpanID(0xb).String() || got.TraceID().String() != c.Trace.String() ||
		got.StartTimestamp() != got.EndTimestamp() || got.StartTimestamp() != 10 {
		t.Errorf("parent %s, trace %s, %d to %d",
			got.ParentSpanID(), got.TraceID(), got.StartTimestamp(), got.EndTimestamp())
	}
	again := request([]Path{c}).ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	for i := range spans.Len() {
		if spans.At(i).SpanID() != again.At(i).SpanID() || spans.At(i).SpanID().IsEmpty() ||
			i > 0 && spans.At(i).SpanID() == spans.At(i-1).SpanID() {
			t.Errorf("span %d: IDs %s and %s", i, spans.At(i).SpanID(), again.At(i).SpanID())
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// exporting calls do in a synctest bubble, with a running exporter. Each request is answered with the code that status
// returns, or not at all if that is 0. sent contains the number of spans in each accepted request.
func exporting(t *testing.T, status func(nth int) int, do func(e *Exporter, sent *[]int)) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Options{URL: "http://tempo:4318/", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var sent []int
		nth := 0
		e.client.Transport = roundTripper(func(q *http.Request) (*http.Response, error) {
			nth++
			code := status(nth)
			if code == 0 {
				return nil, io.ErrUnexpectedEOF
			}
			body, err := io.ReadAll(q.Body)
			if err != nil {
				return nil, err
			}
			request := ptraceotlp.NewExportRequest()
			if err := request.UnmarshalProto(body); err != nil || q.URL.Path != "/v1/traces" ||
				q.Header.Get("Content-Type") != "application/x-protobuf" {
				t.Errorf("%s: %v", q.URL, err)
			}
			if code == 200 {
				sent = append(sent, request.Traces().SpanCount())
			}
			return &http.Response{
				StatusCode: code,
				Status:     fmt.Sprint(code),
				Header:     http.Header{"Retry-After": {"7"}},
				Body:       io.NopCloser(strings.NewReader("x")),
			}, nil
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { e.Run(ctx); close(done) }()
		do(e, &sent)
		stop()
		<-done
	})
}

// numbered returns a trace of one span.
func numbered(i int) Path {
	return Path{
		Trace:    trace.ID{1, byte(i), byte(i >> 8)},
		Duration: 10,
		Spans:    []Span{{ID: 1, Exclusive: 10, Sections: 1}},
	}
}

func TestSends(t *testing.T) {
	flaky := func(nth int) int { return []int{0, 503, 429, 200}[min(nth-1, 3)] }
	exporting(t, flaky, func(e *Exporter, sent *[]int) {
		for i := range 40 {
			e.Add(numbered(i))
			e.Add(numbered(i)) // known
		}
		e.Add(Path{Trace: trace.ID{9}}) // without spans
		time.Sleep(time.Minute)
		synctest.Wait()
		total := 0
		for _, n := range *sent {
			if n > maxBatch {
				t.Errorf("%d traces in one request, want at most %d", n, maxBatch)
			}
			total += n
		}
		if total != 40 || e.Counts() != (Counts{Sent: 40}) {
			t.Errorf("sent %v, %+v", *sent, e.Counts())
		}
	})
}

func TestGivesUp(t *testing.T) {
	for status, want := range map[int]int{400: 1, 503: attempts, 307: 1} {
		calls := 0
		exporting(t, func(nth int) int { calls = nth; return status }, func(e *Exporter, _ *[]int) {
			e.Add(numbered(1))
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if e.Counts() != (Counts{Failed: 1}) {
				t.Errorf("%d: %+v", status, e.Counts())
			}
		})
		if calls != want {
			t.Errorf("%d: %d calls, want %d", status, calls, want)
		}
	}
}

func TestBounds(t *testing.T) {
	e, err := New(Options{URL: "https://tempo/v1/traces", Log: slog.New(slog.DiscardHandler)})
	if err != nil || e.url != "https://tempo/v1/traces" {
		t.Fatal(e, err)
	}
	for i := range maxWaiting + 10 {
		e.Add(numbered(i))
	}
	if e.Counts().Dropped != 10 {
		t.Errorf("%+v", e.Counts())
	}
	for i := range maxKnown + 10 {
		select {
		case <-e.queue:
		default:
		}
		e.Add(numbered(1000 + i))
	}
	if len(e.known) != maxKnown || len(e.order) != maxKnown {
		t.Errorf("%d and %d known traces, want %d", len(e.known), len(e.order), maxKnown)
	}
	for _, u := range []string{"", "tempo:4318", "ftp://tempo", "http://"} {
		if _, err := New(Options{URL: u}); err == nil {
			t.Errorf("New accepted %q", u)
		}
	}
}
