package server

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sibyl-trace/sibyl/api/access"
)

// replicas are three servers that share a journal.
type replicas [3]*process

// startReplicas starts three servers with their brokers.
func startReplicas(t *testing.T) (all replicas) {
	t.Helper()
	brokers, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(brokers.Close)
	for i := range all {
		all[i] = newProcess(t, t.TempDir())
		all[i].more = []string{
			"--cluster-brokers", strings.Join(brokers.ListenAddrs(), ","), "--cluster-patience", "1s",
		}
		all[i].start()
	}
	return all
}

// leader waits until one of the servers leads, and returns its index.
func (all *replicas) leader(t *testing.T) (leads int) {
	t.Helper()
	eventually(t, "a replica leads", func() bool {
		for i, v := range all {
			if r, err := http.Get("http://" + v.api + "/readyz"); err == nil {
				r.Body.Close()
				if r.StatusCode == http.StatusOK {
					leads = i
					return true
				}
			}
		}
		return false
	})
	return leads
}

// sender returns exporters to all servers. A request takes the first that accepts it.
func (all *replicas) sender(t *testing.T) (each []*otlptrace.Exporter) {
	t.Helper()
	for _, v := range all {
		e, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(v.grpc), otlptracegrpc.WithInsecure(),
			otlptracegrpc.WithTimeout(3*time.Second), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
		if err != nil {
			t.Fatal(err)
		}
		each = append(each, e)
	}
	return each
}

// exported exports spans to the first server that accepts them, which it puts first in each. It returns false if no
// server does for a minute.
func exported(ctx context.Context, each []*otlptrace.Exporter, spans tracetest.SpanStubs) bool {
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		for i := range each {
			if each[i].ExportSpans(ctx, spans.Snapshots()) == nil {
				each[0], each[i] = each[i], each[0]
				return true
			}
		}
	}
	return false
}

// What people entered at a replica that died is at the one that leads next: objectives and gates are in effect, and
// tokens are valid.
func TestReplicasShareFiles(t *testing.T) {
	t.Parallel()
	all := startReplicas(t)
	first := all.leader(t)
	secret, _, err := access.Open(all[first].dir).Create(access.Token{Role: access.Admin}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	do := func(v *process, method, path, body string) (code int, answer string) {
		t.Helper()
		url := "http://" + v.api + path
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+secret)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(text)
	}
	for path, body := range map[string]string{
		"/api/v1/objectives": `{"entry":"shop","errors":0.01}`,
		"/api/v1/views":      `{"name":"mine","path":"/problems"}`,
	} {
		if code, answer := do(all[first], http.MethodPost, path, body); code >= http.StatusMultipleChoices {
			t.Fatalf("%s: %d: %s", path, code, answer)
		}
	}
	standby := all[(first+1)%len(all)]
	eventually(t, "the token is at the standby", func() bool {
		code, _ := do(standby, http.MethodGet, "/api/v1/views", "")
		return code == http.StatusOK
	})
	code, answer := do(standby, http.MethodPost, "/api/v1/objectives", `{"entry":"other","errors":0.01}`)
	if code < http.StatusInternalServerError {
		t.Errorf("a standby accepted a change: %d: %s", code, answer)
	}
	all[first].end(os.Kill)
	next := all[all.leader(t)]
	if _, got := do(next, http.MethodGet, "/api/v1/objectives", ""); !strings.Contains(got, `"entry":"shop"`) {
		t.Errorf("after the kill: %s", got)
	}
	if _, got := do(next, http.MethodGet, "/api/v1/views", ""); !strings.Contains(got, "mine") {
		t.Errorf("after the kill: %s", got)
	}
	eventually(t, "the objective is in effect", func() bool {
		_, text := do(next, http.MethodGet, "/metrics", "")
		return strings.Contains(text, `sibyl_objective_burning{below="",entry="shop"`)
	})
	for i, v := range all {
		if i != first {
			v.end(os.Interrupt)
		}
	}
}

// Every acknowledged trace counts exactly once, at each replica, even if replicas are killed, frozen and stopped.
func TestReplicasKilled(t *testing.T) {
	t.Parallel()
	rounds := 8
	if *long || *soak {
		rounds = 60
	}
	all := startReplicas(t)
	all.leader(t)
	var sent, acked atomic.Uint64
	ctx, stop := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	for range 4 {
		each := all.sender(t)
		senders.Go(func() {
			for ctx.Err() == nil {
				trace := traceOf(sent.Add(1))
				if exported(t.Context(), each, trace[0]) && exported(t.Context(), each, trace[1]) {
					acked.Add(1)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for range rounds {
		leads := all.leader(t)
		time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
		switch victim := all[leads]; r.IntN(4) {
		case 0: // the leader dies
			victim.end(os.Kill)
			all.leader(t)
			victim.start()
		case 1: // it freezes for longer than the others wait
			_ = victim.cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(3 * time.Second)
			_ = victim.cmd.Process.Signal(syscall.SIGCONT)
		case 2: // it stops
			victim.end(os.Interrupt)
			victim.start()
		case 3: // a standby dies
			victim = all[(leads+1)%len(all)]
			victim.end(os.Kill)
			victim.start()
		}
	}
	all.leader(t)
	stop()
	senders.Wait()
	time.Sleep(12 * time.Second) // traces close once they have settled, and the standbys read them
	for _, v := range all {
		v.end(os.Interrupt)
	}
	counted := make(map[uint64]bool)
	for i, v := range all {
		n := requestsIn(t, v.dir)
		counted[n] = true
		if n < acked.Load() || n > sent.Load() {
			t.Errorf("replica %d: got %d traces, %d of %d acknowledged:\n%s",
				i, n, acked.Load(), sent.Load(), v.logged())
		}
	}
	if len(counted) != 1 {
		t.Errorf("the replicas have counted different numbers of traces: %v", counted)
	}
	t.Logf("%d traces, %d acknowledged", sent.Load(), acked.Load())
	if acked.Load() < 100 {
		t.Error("too few traces were acknowledged to show anything")
	}
}
