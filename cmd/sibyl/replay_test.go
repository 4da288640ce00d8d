package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/replay"
	"github.com/sibyl-trace/sibyl/store"
)

// intake passes requests to the engine, like the service.
type intake struct{ service *live.Service }

func (i intake) Take(ctx context.Context, body []byte, _ receiver.Format) (receiver.Rejected, error) {
	n, why, err := i.service.Take(ctx, body, journal.Protobuf)
	return receiver.Rejected{Spans: n, Why: why}, err
}

// serve runs the engine behind an OTLP receiver until the test ends. It returns the engine and the address of gRPC.
func serve(t *testing.T) (*live.Service, string) {
	t.Helper()
	dir := t.TempDir()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	j, err := journal.Open(journal.Options{Dir: filepath.Join(dir, "journal"), Disk: disk, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(store.Options{Dir: filepath.Join(dir, "store"), Disk: disk, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	o := live.DefaultOptions()
	o.Journal, o.Store, o.Log, o.Keys = j, st, log, ingest.AllKeys()
	o.Core.Epoch, o.Assembly.Settle, o.Assembly.Idle = time.Second, 500*time.Millisecond, time.Second
	s, err := live.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := receiver.New(intake{s}, receiver.Options{GRPC: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- s.Run(ctx) }()
	go func() { ended <- r.Serve() }()
	t.Cleanup(func() {
		err := r.Shutdown(context.Background())
		stop()
		if err := errors.Join(err, <-ended, <-ended, j.Close(), st.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, r.GRPCAddr().String()
}

// counted holds the statistics of a group.
type counted struct {
	Level group.Level
	Entry string
	N     uint64
	Mean  time.Duration
}

// inService returns the service's statistics of all groups, and their number of traces.
func inService(t *testing.T, s *live.Service) (all map[analysis.Hash]counted, traces uint64) {
	t.Helper()
	all = make(map[analysis.Hash]counted)
	err := s.Ask(t.Context(), func(c *engine.View) {
		g := c.Groups
		for _, grp := range g.Groups() {
			var w group.Window
			for _, part := range grp.Windows() {
				w.Total.Merge(part.Total)
			}
			entry := g.Table.ServiceName(grp.Entry) + " " + g.Table.OpName(grp.Entry)
			all[grp.ID] = counted{grp.Level, entry, w.Total.N, time.Duration(w.Total.Mean())}
			if grp.Level == group.LevelRequestType {
				traces += w.Total.N
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, traces
}

// A replayed recording leads to the same groups in the service as in the report on the file.
func TestReplayShowsTheSameGroups(t *testing.T) {
	for _, file := range []string{"../../testdata/small.jaeger.json.gz", "../../testdata/shop.otlp.jsonl.gz"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			report, err := offline.Analyze(t.Context(), []string{file}, offline.DefaultOptions())
			if err != nil {
				t.Fatal(err)
			}
			want := make(map[analysis.Hash]counted)
			for _, g := range report.Groups {
				want[g.ID] = counted{
					g.Level, report.Table.ServiceName(g.Entry) + " " + report.Table.OpName(g.Entry),
					g.Count, g.Mean,
				}
			}
			service, address := serve(t)
			r := sibyl(t, "", "replay", "--to", address, "--speed", "100", file)
			if r.code != cli.ExitOK || !strings.Contains(r.out, " 0 rejected") ||
				!strings.Contains(r.err, "--new-ids makes them new ones") {
				t.Fatalf("%+v", r)
			}
			got, traces := inService(t, service)
			for end := time.Now().Add(time.Minute); traces < uint64(report.Traces) && time.Now().Before(end); {
				time.Sleep(50 * time.Millisecond)
				got, traces = inService(t, service)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%d of %d traces\n%s", traces, report.Traces, diff)
			}
		})
	}
}

// A second replay of the example sends the traces of the first replay again, and Sibyl ignores them. If it used new
// ones, they would contradict the first.
func TestExampleAgain(t *testing.T) {
	var mu sync.Mutex
	ids := make(map[pcommon.TraceID]bool)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		request := ptraceotlp.NewExportRequest()
		if err := errors.Join(err, request.UnmarshalProto(body)); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for s := range replay.Spans(request.Traces()) {
			ids[s.TraceID()] = true
		}
	}))
	defer server.Close()
	var after []int
	for range 2 {
		r := sibyl(t, "", "replay", "--example", "--past", "1h", "--to", server.URL)
		if r.code != cli.ExitOK ||
			!strings.Contains(r.err, "to see the example again, start sibyl serve with an empty data directory") {
			t.Fatalf("%+v", r)
		}
		after = append(after, len(ids))
	}
	if after[0] == 0 || after[1] != after[0] {
		t.Errorf("%d traces after the first replay, %d after the second", after[0], after[1])
	}
}
