package server

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// smallDisk mounts a disk of 64 MiB until the test ends.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// largeTraces returns the body of an export request with traces of one span each, with 2 KiB of incompressible text.
func largeTraces(t *testing.T, traces int) string {
	t.Helper()
	random := func(n int) string {
		b := make([]byte, n)
		_, _ = rand.Read(b) // never fails
		return hex.EncodeToString(b)
	}
	var spans []string
	for range traces {
		now := time.Now().UnixNano()
		spans = append(spans, fmt.Sprintf(`{
			"traceId":%q,"spanId":%q,"name":"GET /","kind":2,"startTimeUnixNano":%d,"endTimeUnixNano":%d,
			"attributes":[{"key":"noise","value":{"stringValue":%q}}]
		}`, random(16), random(8), now, now+1e7, random(1024)))
	}
	return `{"resourceSpans":[{
		"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},
		"scopeSpans":[{"spans":[` + strings.Join(spans, ",") + `]}]
	}]}`
}

// post sends body as an export request over HTTP.
func (v *process) post(body string) (status int, retry, answer string) {
	v.t.Helper()
	r, err := http.Post("http://"+v.http+"/v1/traces", "application/json", strings.NewReader(body))
	if err != nil {
		v.t.Fatalf("%v; the server's log:\n%s", err, v.logged())
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return r.StatusCode, r.Header.Get("Retry-After"), string(text)
}

// groups returns the number of requests that the API reports.
func (v *process) groups() (n uint64) {
	v.t.Helper()
	r, err := http.Get("http://" + v.api + "/api/v1/groups?level=request_type")
	if err != nil {
		v.t.Fatalf("%v; the server's log:\n%s", err, v.logged())
	}
	defer r.Body.Close()
	var list contract.GroupList
	if err := json.NewDecoder(r.Body).Decode(&list); err != nil || r.StatusCode != http.StatusOK {
		v.t.Fatalf("%d, %v", r.StatusCode, err)
	}
	for i := range list.Items {
		n += uint64(list.Items[i].Count)
	}
	return n
}

// fill writes to the file name until the disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// While the disk is full, requests are refused with a time to retry and everything else works, even if another program
// uses up the service's reserve. Once there is space, requests are accepted again, and every acknowledged trace counts
// exactly once.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	v := newProcess(t, filepath.Join(disk, "data"))
	v.http, v.more = freeAddress(t), []string{"--assembly-timeout", "200ms", "--memory", "512MiB"}
	other := filepath.Join(disk, "other")
	if err := os.WriteFile(other, make([]byte, 30<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	v.start()
	defer func() { v.end(os.Kill) }()
	v.ready()

	acked := uint64(0)
	const traces = 100
	send := func() bool {
		code, retry, answer := v.post(largeTraces(t, traces))
		switch {
		case code == http.StatusOK:
			acked += traces
		case code != http.StatusTooManyRequests || retry == "" || !strings.Contains(answer, "disk is full"):
			t.Fatalf("%d, Retry-After %q: %s", code, retry, answer)
		}
		return code == http.StatusOK
	}
	for send() {
		if acked > 1_000_000 {
			t.Fatal("the disk does not fill")
		}
	}
	if acked == 0 {
		t.Fatal("a request was refused before the disk was full")
	}
	v.refusesGRPC()
	v.groups()

	fill(t, filepath.Join(disk, "more"))
	for range 20 { // at least two epochs
		if send() {
			t.Fatal("a request was accepted on a full disk")
		}
		v.groups()
		time.Sleep(100 * time.Millisecond)
	}
	for _, name := range []string{"other", "more"} {
		if err := os.Remove(filepath.Join(disk, name)); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); !send(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("requests are refused a minute after the disk has space again; the server's log:\n%s", v.logged())
		}
	}
	deadline := time.Now().Add(time.Minute)
	for v.groups() < acked && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
	}
	if n := v.groups(); n != acked {
		t.Errorf("got %d traces, want the %d acknowledged; the server's log:\n%s", n, acked, v.logged())
	}
	v.end(os.Kill)
	v.start()
	v.ready()
	if n := v.groups(); n != acked {
		t.Errorf("after a crash: got %d traces, want the %d acknowledged", n, acked)
	}
}

// refusesGRPC checks that a gRPC request is refused with a time to retry.
func (v *process) refusesGRPC() {
	v.t.Helper()
	conn, err := grpc.NewClient(v.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		v.t.Fatal(err)
	}
	defer conn.Close()
	traces := ptrace.NewTraces()
	span := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetTraceID([16]byte{1})
	span.SetSpanID([8]byte{1})
	_, err = ptraceotlp.NewGRPCClient(conn).Export(v.t.Context(), ptraceotlp.NewExportRequestFromTraces(traces))
	st := status.Convert(err)
	if st.Code() != codes.Unavailable || len(st.Details()) != 1 {
		v.t.Fatalf("gRPC: %v", st)
	}
	if retry, ok := st.Details()[0].(*errdetails.RetryInfo); !ok || retry.GetRetryDelay().AsDuration() <= 0 {
		v.t.Errorf("gRPC: %v", st.Details())
	}
}
