package otlp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// receiver is a Collector.
type receiver struct {
	ptraceotlp.UnimplementedGRPCServer
	received chan ptrace.Traces
	refuse   error
	rejects  string   // reason for rejecting a span of each request, if not empty
	token    []string // of the last request
}

// Export implements [ptraceotlp.GRPCServer].
func (r *receiver) Export(ctx context.Context, request ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	if r.refuse != nil {
		return ptraceotlp.NewExportResponse(), r.refuse
	}
	r.token = metadata.ValueFromIncomingContext(ctx, "authorization")
	answer := ptraceotlp.NewExportResponse()
	if r.rejects != "" {
		answer.PartialSuccess().SetRejectedSpans(1)
		answer.PartialSuccess().SetErrorMessage(r.rejects)
		return answer, nil
	}
	r.received <- request.Traces()
	return answer, nil
}

func listen(t *testing.T, r *receiver) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(s, r)
	go func() { _ = s.Serve(l) }() // until Stop
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func wait(service *join.Service, tid uint32) join.Wait {
	return join.Wait{
		Event:   waits.Event{TGID: 7, TID: tid},
		Part:    waits.Part{Start: 3_500, End: 4_500, RunqNs: 500, Syscall: 74, Class: waits.Sync},
		Trace:   [16]byte{1},
		Parent:  [8]byte{2},
		Quality: join.Exact,
		Service: service,
	}
}

func name(int32) string { return "fsync" }

// Waits arrive as spans of their own service, below the span that waited.
func TestSend(t *testing.T) {
	r := &receiver{received: make(chan ptrace.Traces, 1)}
	e, err := Open(listen(t, r), "secret", name, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	orders := join.NewService(map[string]string{"host.name": "b", "service.name": "orders"})
	stock := join.NewService(map[string]string{"service.name": "stock"})
	e.Add([]join.Wait{wait(orders, 8), wait(stock, 9), wait(orders, 10)})
	all := <-r.received
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if all.ResourceSpans().Len() != 2 || all.SpanCount() != 3 {
		t.Fatalf("%d services, %d spans", all.ResourceSpans().Len(), all.SpanCount())
	}
	of := all.ResourceSpans().At(0)
	if got := of.Resource().Attributes().AsRaw(); got["service.name"] != "orders" || got["host.name"] != "b" {
		t.Errorf("resource %v", got)
	}
	if got := of.ScopeSpans().At(0).Scope().Name(); got != waits.Scope {
		t.Errorf("scope %q", got)
	}
	spans := of.ScopeSpans().At(0).Spans()
	s := spans.At(0)
	if s.Name() != "wait sync" || s.Kind() != ptrace.SpanKindInternal || s.TraceID() != [16]byte{1} ||
		s.ParentSpanID() != [8]byte{2} {
		t.Errorf("%s %s %s below %s", s.Name(), s.Kind(), s.TraceID(), s.ParentSpanID())
	}
	if d := s.EndTimestamp() - s.StartTimestamp(); d != 1_000 {
		t.Errorf("%d ns, want 1,000 without the run-queue part", d)
	}
	if s.SpanID().IsEmpty() || s.SpanID() == spans.At(1).SpanID() {
		t.Errorf("identities %s and %s", s.SpanID(), spans.At(1).SpanID())
	}
	want := map[string]any{
		keyTracepoint: "orders/kernel/sync", keyClass: "sync", keySyscall: "fsync", keyRunqueue: int64(500),
		keyQuality: "exact", keyThread: int64(8),
	}
	for k, v := range want {
		if got := s.Attributes().AsRaw()[k]; got != v {
			t.Errorf("%s is %v, want %v", k, got, v)
		}
	}
	if c := e.Counts(); c != (Counts{Sent: 3}) {
		t.Errorf("%+v", c)
	}
	if !slices.Equal(r.token, []string{"Bearer secret"}) {
		t.Errorf("token %q", r.token)
	}
}

func TestEndpoints(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:4317": "insecure", "grpc://[::1]:4317": "insecure", "grpcs://sibyl.example.com:4317": "tls",
		"": "", "sibyl.example.com": "", ":4317": "", "https://sibyl.example.com:4317": "",
		"grpcs://sibyl.example.com:4317/v1/traces": "",
	} {
		_, security, err := parseEndpoint(text)
		got := ""
		if err == nil {
			got = security.Info().SecurityProtocol
		}
		if got != want {
			t.Errorf("%q: %q, want %q; %v", text, got, want, err)
		}
	}
}

// A receiver that refuses waits is logged once, and its waits are counted.
func TestRefused(t *testing.T) {
	var log strings.Builder
	e, err := Open("grpc://"+listen(t, &receiver{refuse: errors.New("no")}), "", name,
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		e.Add([]join.Wait{wait(&join.Service{}, 1)})
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if c := e.Counts(); c != (Counts{Failed: 3}) {
		t.Errorf("%+v", c)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines of the log:\n%s", n, log.String())
	}
}

// The log contains the reason why a receiver rejects a part of the waits.
func TestRejected(t *testing.T) {
	var log strings.Builder
	e, err := Open(listen(t, &receiver{rejects: "too old"}), "", name, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		e.Add([]join.Wait{wait(&join.Service{}, 1), wait(&join.Service{}, 2)})
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if c := e.Counts(); c != (Counts{Sent: 2, Failed: 2}) {
		t.Errorf("%+v", c)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "too old") {
		t.Errorf("log %q", got)
	}
}

// Each request is below the usual limit of Collectors, 4 MiB, however long the names of functions are.
func TestLargeWaits(t *testing.T) {
	r := &receiver{received: make(chan ptrace.Traces, maxQueued)}
	e, err := Open(listen(t, r), "", name, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	service := join.NewService(map[string]string{
		"service.name": strings.Repeat("s", 1000), "x": strings.Repeat("y", 16<<10),
	})
	list := make([]join.Wait, maxBatch)
	for i := range list {
		list[i] = wait(service, uint32(i))
		list[i].Frames = slices.Repeat([]string{strings.Repeat("f", 256)}, 127)
	}
	e.Add(list)
	for c := e.Counts(); c.Sent+c.Dropped+c.Failed < maxBatch; c = e.Counts() {
		time.Sleep(10 * time.Millisecond) // Close gives up after a while, and the machine may be busy
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if c := e.Counts(); c != (Counts{Sent: maxBatch}) || len(r.received) < 2 {
		t.Errorf("%+v in %d requests", c, len(r.received))
	}
}
