package server

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jaegertracing/jaeger-idl/proto-gen/api_v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/api/cases"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/internal/gogocodec"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// outboundTenant returns a tenant with the parts that its integrations use.
func outboundTenant(t *testing.T, c *config.Config, kept *store.Store, dir string) *tenant {
	t.Helper()
	return &tenant{
		config:   c,
		store:    kept,
		notes:    notesIn(t, dir),
		silences: silencesIn(t, dir),
		log:      slog.New(slog.DiscardHandler),
	}
}

// notesIn returns the notes in a data directory.
func notesIn(t *testing.T, dir string) *cases.Notes {
	t.Helper()
	notes, err := cases.OpenNotes(dir)
	if err != nil {
		t.Fatal(err)
	}
	return notes
}

// silencesIn returns the silences in a data directory.
func silencesIn(t *testing.T, dir string) *cases.Silences {
	t.Helper()
	silences, err := cases.OpenSilences(dir)
	if err != nil {
		t.Fatal(err)
	}
	return silences
}

// A fault in a running application causes webhook events and a higher sampling rate of the affected requests. The
// incident causes one event, with slow traces and a link.
func TestFaultCausesEventAndSampling(t *testing.T) {
	events := make(chan notify.Event, 1000)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		var e struct {
			Type notify.Type
			Data struct {
				Incident *struct {
					ID, Service, URL, Next string
					Traces                 []notify.Trace
				}
			}
		}
		if err != nil || json.Unmarshal(body, &e) != nil {
			t.Errorf("an event cannot be decoded: %s", body)
		}
		x := notify.Event{Type: e.Type}
		if i := e.Data.Incident; i != nil {
			x.Data.Incident = &notify.Incident{ID: i.ID, Service: i.Service, URL: i.URL, Next: i.Next, Traces: i.Traces}
		}
		events <- x
	}))
	defer hook.Close()
	dir := t.TempDir()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(store.Options{Dir: dir, Disk: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	c := &config.Config{
		HTTP:         "127.0.0.1:8321",
		SamplingHTTP: "127.0.0.1:0",
		Sampling:     config.Sampling{Default: 0.001, Budget: 100},
		Webhooks:     []config.Webhook{{Name: "hook", URL: hook.URL, Format: "sibyl", AllowPrivate: true}},
	}
	o, err := newOutbound(outboundTenant(t, c, kept, dir))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.run(ctx) }()

	options := engine.DefaultOptions()
	options.Learning = time.Minute
	// It has fewer traces per type than wanted.
	app := sim.New(sim.Config{Seed: 3, Fault: sim.SlowPath, Tracepoints: 100, Rate: 10})
	core := engine.NewCore(app.Table(), options)
	core.Announce(trace.Nanos(1), app.Catalogue())
	now, services := trace.Nanos(1_700_000_000_000_000_000), map[string]bool{}
	for epoch := range 140 {
		if epoch == 80 {
			app.Inject(now)
		}
		for x := range app.Requests(now, now.Add(options.Epoch), &sim.Plan{}) {
			if epoch == 80 {
				putExemplar(t, kept, core, x)
			}
			core.Ingest(x)
		}
		now = now.Add(options.Epoch)
		e := live.Ended{At: now, Before: core.View().Problems.Open()}
		e.Decisions = core.Epoch(now)
		if err := o.epoch(core.View(), e, nil); err != nil {
			t.Fatal(err)
		}
		for service := range o.strategies.Rates().Services {
			services[service] = true
		}
	}
	incidents := 0
	for problem := false; !problem || incidents == 0; {
		select {
		case e := <-events:
			problem = problem || e.Type == notify.ProblemOpened
			if e.Type != notify.IncidentOpened {
				continue
			}
			incidents++
			if x := e.Data.Incident; x.Service == "" || x.Next == "" || len(x.Traces) == 0 ||
				x.URL != "http://127.0.0.1:8321/incidents/"+x.ID {
				t.Errorf("incident %+v", x)
			}
		case <-time.After(time.Minute):
			t.Fatalf("a problem: %t, %d incidents within a minute", problem, incidents)
		}
	}
	if got := len(core.View().Incidents.All()); incidents != got {
		t.Errorf("%d events for %d incidents", incidents, got)
	}
	if len(services) == 0 {
		t.Error("no sampling rate was raised")
	}
	for service := range services {
		answer := httptest.NewRecorder()
		o.strategies.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/sampling?service="+service, nil))
		if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "operationSampling") {
			t.Errorf("%s: %d %s", service, answer.Code, answer.Body)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// putExemplar stores x as the slow exemplar of all request types.
func putExemplar(t *testing.T, kept *store.Store, core *engine.Core, x *trace.Trace) {
	t.Helper()
	for g := range core.View().Groups.Each() {
		e := store.Exemplar{Trace: x.ID, Root: x.Spans[0].ID, Start: x.Spans[0].Start, Duration: int64(time.Second)}
		if err := kept.Exemplars.Put(g.ID, &store.Exemplars{Slow: []store.Exemplar{e}}); err != nil {
			t.Fatal(err)
		}
	}
}

// The position of a fetch survives a restart.
func TestPositions(t *testing.T) {
	dir := t.TempDir()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []time.Time
	through := time.Unix(1_700_000_000, 5).UTC()
	for range 2 {
		kept, err := store.Open(store.Options{Dir: dir, Disk: disk, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		p := position{kept, "http://jaeger:16686"}
		at, err := p.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, at)
		if err := p.Save(t.Context(), through); err != nil {
			t.Fatal(err)
		}
		if err := kept.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, []time.Time{{}, through}) {
		t.Errorf("positions %v, want none and %v", got, through)
	}
}

// certificate returns a server whose client trusts a certificate, and the files with the certificate and its key.
func certificate(t *testing.T) (known *httptest.Server, cert, key string) {
	t.Helper()
	known = httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(known.Close)
	pair := known.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	return known, write("cert.pem", "CERTIFICATE", pair.Certificate[0]), write("key.pem", "PRIVATE KEY", private)
}

// With TLS, every answer of the API and the UI tells browsers to use only TLS. Without TLS, no answer does.
func TestOnlyEncrypted(t *testing.T) {
	known, cert, key := certificate(t)
	for _, encrypted := range []bool{true, false} {
		env, scheme, want := volatile(t.TempDir()), "http", ""
		env["SIBYL_HTTP"] = freeAddress(t)
		if encrypted {
			env["SIBYL_API_TLS_CERT"], env["SIBYL_API_TLS_KEY"] = cert, key
			scheme, want = "https", "max-age=31536000"
		}
		e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
		if err != nil {
			t.Fatal(err)
		}
		started(t, e, &slog.LevelVar{}, io.Discard)
		for _, path := range []string{"/", "/api/v1/status", "/healthz", "/nothing", protocol.Path + "a/plan"} {
			r, err := known.Client().Get(scheme + "://" + env["SIBYL_HTTP"] + path)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if got := r.Header.Get("Strict-Transport-Security"); got != want {
				t.Errorf("encrypted %t, %s: %q, want %q", encrypted, path, got, want)
			}
		}
	}
}

// Both listeners of remote sampling use the configured certificate.
func TestSamplingEncrypts(t *testing.T) {
	known, cert, key := certificate(t)
	env := volatile(t.TempDir())
	env["SIBYL_SAMPLING_HTTP"], env["SIBYL_SAMPLING_GRPC"] = freeAddress(t), freeAddress(t)
	env["SIBYL_SAMPLING_TLS_CERT"], env["SIBYL_SAMPLING_TLS_KEY"] = cert, key
	env["SIBYL_SAMPLING_DEFAULT"] = "0.25"
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	started(t, e, &slog.LevelVar{}, io.Discard)
	r, err := known.Client().Get("https://" + env["SIBYL_SAMPLING_HTTP"] + "/sampling?service=shop")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if body, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(body), `"samplingRate":0.25`) {
		t.Errorf("%s, %v", body, err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(known.Certificate())
	conn, err := grpc.NewClient(env["SIBYL_SAMPLING_GRPC"],
		grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(roots, "")),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(gogocodec.New())))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	query := &api_v2.SamplingStrategyParameters{ServiceName: "shop"}
	got, err := api_v2.NewSamplingManagerClient(conn).GetSamplingStrategy(t.Context(), query)
	if err != nil || got.ProbabilisticSampling.SamplingRate != 0.25 {
		t.Errorf("%v, %v", got, err)
	}
}

// Nobody is notified of an incident that opens while a silence covers it. When the silence ends while the incident is
// still open, the notification is sent, once, also after a restart.
func TestEndOfSilence(t *testing.T) {
	dir := t.TempDir()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(store.Options{Dir: dir, Disk: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	c := &config.Config{Webhooks: []config.Webhook{{Name: "hook", URL: "https://hook.example", Format: "sibyl"}}}
	o, err := newOutbound(outboundTenant(t, c, kept, dir))
	if err != nil {
		t.Fatal(err)
	}
	options := engine.DefaultOptions()
	options.Learning = time.Minute
	app := sim.New(sim.Config{Seed: 3, Fault: sim.SlowPath, Rate: 10})
	core := engine.NewCore(app.Table(), options)
	now, silent := trace.Nanos(1_700_000_000_000_000_000), true
	epoch := func() (open int) {
		t.Helper()
		for x := range app.Requests(now, now.Add(options.Epoch), &sim.Plan{}) {
			core.Ingest(x)
		}
		now = now.Add(options.Epoch)
		core.Epoch(now)
		silenced := make(map[uint64]*contract.Silenced)
		for _, x := range core.View().Incidents.All() {
			if x.IsOpen() {
				open++
				if silent {
					silenced[x.ID] = &contract.Silenced{}
				}
			}
		}
		if err := o.epoch(core.View(), live.Ended{At: now}, silenced); err != nil {
			t.Fatal(err)
		}
		return open
	}
	told := func() (n int) {
		for _, m := range o.outbox.List(false, 0, 1000) {
			if m.Event == string(notify.IncidentOpened) {
				n++
			}
		}
		return n
	}
	for range 80 {
		epoch()
	}
	app.Inject(now)
	open := 0
	for i := 0; open == 0 && i < 60; i++ {
		open = epoch()
	}
	if held := o.silences.Held(); open != 1 || told() != 0 || len(held) != 1 {
		t.Fatalf("%d open incidents, %d notifications, held %v", open, told(), held)
	}
	o.silences = silencesIn(t, dir) // a restart
	epoch()
	if told() != 0 {
		t.Fatal("notified while the silence goes on")
	}
	silent = false
	for range 2 {
		if epoch() != 1 || told() != 1 {
			t.Errorf("after the end of the silence: %d notifications, want 1", told())
		}
	}
	if held := silencesIn(t, dir).Held(); len(held) != 0 {
		t.Errorf("still held: %v", held)
	}
	silent = true
	epoch()
	silent = false
	if epoch(); told() != 1 {
		t.Errorf("%d notifications after a second silence, want 1", told())
	}
}
