package server

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/api/access"
)

// target is a server under attack, with a token of each role.
type target struct {
	*process

	sampling   string
	tokens     map[access.Role]string
	encryption *tls.Config // for gRPC; nil for clear text
}

// newTarget starts a server that requires tokens on all addresses.
func newTarget(t *testing.T) *target {
	t.Helper()
	a := &target{
		process:  newProcess(t, t.TempDir()),
		sampling: freeAddress(t),
		tokens:   make(map[access.Role]string),
	}
	a.http, a.more = freeAddress(t), []string{"--otlp-require-token", "--sampling-http", a.sampling}
	for _, role := range access.Roles() {
		secret, _, err := access.Open(a.dir).Create(access.Token{Role: role, Name: string(role)}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		a.tokens[role] = secret
	}
	a.start()
	t.Cleanup(func() { a.end(os.Kill) })
	a.ready()
	return a
}

// listeners returns the addresses that speak HTTP/1.
func (a *target) listeners() map[string]string {
	return map[string]string{"API": a.api, "OTLP": a.http, "sampling": a.sampling}
}

// internals matches internal details, which answers must not reveal.
var internals = regexp.MustCompile(`goroutine|\.go:\d|panic|runtime error|pebble|/tmp/|root:|0x[0-9a-f]{6}`)

// reply is an answer over HTTP or gRPC, read completely.
type reply struct {
	code      int
	body      string
	grpc, why string // status and message of a gRPC call
}

// read reads r and closes its body.
func read(t *testing.T, r *http.Response) *reply {
	t.Helper()
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Errorf("an answer cannot be read: %v", err)
	}
	return &reply{
		r.StatusCode, string(body), r.Header.Get("Grpc-Status") + r.Trailer.Get("Grpc-Status"),
		r.Header.Get("Grpc-Message") + r.Trailer.Get("Grpc-Message"),
	}
}

// refused checks that r is a refusal with one of the codes want, if any are given, with a reason and without internal
// details.
func (a *target) refused(t *testing.T, name string, r *reply, want ...int) {
	t.Helper()
	switch {
	case r == nil:
		t.Errorf("%s: no answer", name)
	case r.code < 400, r.code >= 500, r.body == "", len(want) > 0 && !slices.Contains(want, r.code):
		t.Errorf("%s: got %d: %s", name, r.code, r.body)
	case internals.MatchString(r.body):
		t.Errorf("%s: the answer reveals internal details: %s", name, r.body)
	}
}

// do sends a request with a token, or without one if token is empty.
func (a *target) do(t *testing.T, method, url, token string, body io.Reader, headers ...string) *reply {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return read(t, r)
}

// export sends traces over HTTP.
func (a *target) export(t *testing.T, token string, body io.Reader, headers ...string) *reply {
	t.Helper()
	return a.do(t, http.MethodPost, "http://"+a.http+"/v1/traces", token, body, headers...)
}

// raw sends text on a new connection, then more at every interval, and returns the answer, or nil if the connection
// was closed without one.
func raw(t *testing.T, address, text, more string, every time.Duration) *reply {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		return nil
	}
	if more != "" {
		go func() {
			for err := error(nil); err == nil; time.Sleep(every) {
				_, err = io.WriteString(c, more)
			}
		}()
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: the connection is still open after a minute", address)
	}
	if err != nil {
		return nil
	}
	return read(t, r)
}

// A server under attack refuses every malicious request with a clear error, reveals no internal details, keeps its
// memory bounded, and serves afterwards.
func TestAttacks(t *testing.T) {
	t.Parallel()
	a := newTarget(t)
	for name, attack := range map[string]func(*testing.T){
		"slow": a.slow, "bombs": a.bombs, "headers": a.manyHeaders, "deep": a.deep, "paths": a.paths,
		"unauthorized": a.unauthorized,
	} {
		t.Run(name, attack)
	}
	status := a.do(t, http.MethodGet, "http://"+a.api+"/api/v1/status", a.tokens[access.Viewer], nil)
	sent := a.do(t, http.MethodPost, "http://"+a.http+"/v1/traces", a.tokens[access.Agent], strings.NewReader("{}"))
	if status.code != http.StatusOK || sent.code != http.StatusOK {
		t.Errorf("afterwards: %+v, %+v", status, sent)
	}
	peak := peakMemory(t, a.cmd.Process.Pid)
	t.Logf("peak memory %d MiB", peak>>20)
	if peak > 600<<20 {
		t.Errorf("peak memory %d MiB, want at most 600", peak>>20)
	}
	if text := a.logged(); strings.Contains(text, "panic") || strings.Contains(text, "level=ERROR") {
		t.Errorf("the log:\n%s", text)
	}
}

// peakMemory returns the peak resident memory of the process pid in bytes.
func peakMemory(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("the system does not report the memory of a process: %v", err)
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(after, &bytes); err != nil {
		t.Fatal(err)
	}
	return bytes << 10
}

// mute is the path of a change of an unknown problem.
const mute = "/api/v1/problems/00000000000000000000000000000000/mute"

// unfinished returns a request up to the first byte of its body. line is its method and path.
func unfinished(line, token string) string {
	return line + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n" +
		"Authorization: Bearer " + token + "\r\n\r\n{"
}

// slow sends headers and bodies byte by byte. OTLP waits half a minute for a body, which package receiver tests with a
// shorter timeout.
func (a *target) slow(t *testing.T) {
	var all sync.WaitGroup
	defer all.Wait()
	for name, address := range a.listeners() {
		all.Go(func() { // closing the connection without an answer is correct, too
			r := raw(t, address, "GET / HTTP/1.1\r\nHost: localhost\r\n", "X: y\r\n", 500*time.Millisecond)
			if r != nil {
				a.refused(t, name+": half a header", r)
			}
		})
	}
	all.Go(func() {
		if r := raw(t, a.grpc, "PRI * HTTP/2.0", "", 0); r != nil {
			t.Errorf("gRPC: got an answer to half a preface: %+v", r)
		}
	})
	all.Go(func() {
		r := raw(t, a.api, unfinished("PUT "+mute, a.tokens[access.Operator]), " ", 500*time.Millisecond)
		a.refused(t, "API: half a body", r)
	})
	if !*soak {
		return
	}
	all.Go(func() {
		r := raw(t, a.http, unfinished("POST /v1/traces", a.tokens[access.Agent]), " ", time.Second)
		a.refused(t, "OTLP: half a body", r)
	})
	all.Go(func() {
		body, sender := io.Pipe()
		defer sender.Close()
		go func() { _, _ = sender.Write([]byte{0, 0, 0, 0, 9, 1}) }()
		a.refusedRPC(t, "half a body", a.rpc(t, a.tokens[access.Agent], "", body), "4")
	})
}

// rpc calls OTLP's only method over gRPC, on a new connection. body contains framed messages. rpc returns nil if there
// is no answer.
func (a *target) rpc(t *testing.T, token, encoding string, body io.Reader, headers ...string) *reply {
	t.Helper()
	r, err := a.transport(t).RoundTrip(a.rpcRequest(t, token, encoding, body, headers...))
	if err != nil {
		t.Logf("RPC: %v", err)
		return nil
	}
	return read(t, r)
}

// transport returns a transport for gRPC.
func (a *target) transport(t *testing.T) *http.Transport {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(a.encryption == nil)
	protocols.SetHTTP2(a.encryption != nil)
	transport := &http.Transport{Protocols: protocols, TLSClientConfig: a.encryption}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// rpcRequest returns a call of OTLP's only method over gRPC.
func (a *target) rpcRequest(t *testing.T, token, encoding string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	scheme := "http://"
	if a.encryption != nil {
		scheme = "https://"
	}
	url := scheme + a.grpc + "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	q.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	if encoding != "" {
		q.Header.Set("Grpc-Encoding", encoding)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	return q
}

// refusedRPC checks that r refuses a call with one of the codes want, with a reason and without internal details.
func (a *target) refusedRPC(t *testing.T, name string, r *reply, want ...string) {
	t.Helper()
	if r == nil || !slices.Contains(want, r.grpc) || r.why == "" || internals.MatchString(r.why) {
		t.Errorf("gRPC, %s: got %+v, want a refusal with a code of %v", name, r, want)
	}
}

// framed returns message, which is compressed, after the header of a gRPC frame.
func framed(message []byte) io.Reader {
	return bytes.NewReader(append(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(message))), message...))
}

// bombs sends decompression bombs of 200 MiB concurrently, with a token that may send traces.
func (a *target) bombs(t *testing.T) {
	const size = 200 << 20
	compress := func(w io.WriteCloser, out *bytes.Buffer) []byte {
		zeros := make([]byte, 1<<20)
		for range size / len(zeros) {
			if _, err := w.Write(zeros); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	var zipped, squeezed bytes.Buffer
	z, err := zstd.NewWriter(&squeezed)
	if err != nil {
		t.Fatal(err)
	}
	compressed := map[string][]byte{"gzip": compress(gzip.NewWriter(&zipped), &zipped), "zstd": compress(z, &squeezed)}
	var all sync.WaitGroup
	for encoding, bomb := range compressed {
		for range 4 {
			all.Go(func() {
				r := a.export(t, a.tokens[access.Agent], bytes.NewReader(bomb), "Content-Encoding", encoding)
				a.refused(t, encoding+" over HTTP", r, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests)
			})
			all.Go(func() {
				a.refusedRPC(t, encoding, a.rpc(t, a.tokens[access.Agent], encoding, framed(bomb)), "8", "14")
			})
		}
	}
	all.Wait()
	// The API accepts neither compressed nor large bodies.
	for path, role := range map[string]access.Role{mute: access.Operator, protocol.Path + "x": access.Agent} {
		bomb := bytes.NewReader(compressed["gzip"])
		r := a.do(t, http.MethodPut, "http://"+a.api+path, a.tokens[role], bomb, "Content-Encoding", "gzip")
		a.refused(t, path, r)
	}
}

// manyHeaders sends 100 000 headers.
func (a *target) manyHeaders(t *testing.T) {
	var headers strings.Builder
	list := make([]string, 0, 200_000)
	for i := range 100_000 {
		fmt.Fprintf(&headers, "H%d: x\r\n", i)
		list = append(list, fmt.Sprint("h", i), "x")
	}
	for name, address := range a.listeners() {
		text := "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n" + headers.String() + "\r\n"
		if r := raw(t, address, text, "", 0); r != nil {
			a.refused(t, name, r, http.StatusRequestHeaderFieldsTooLarge)
		}
	}
	r := a.rpc(t, a.tokens[access.Agent], "", strings.NewReader(""), list...) // nil if the connection was closed
	if r != nil && (r.grpc == "0" || r.code == http.StatusOK && r.grpc == "") {
		t.Errorf("gRPC: got %+v, want a refusal", r)
	}
}

// deep sends deeply nested JSON, in fields that are decoded and in fields that are skipped.
func (a *target) deep(t *testing.T) {
	nested := func(depth int, before, after string) io.Reader {
		return strings.NewReader(before + strings.Repeat("[", depth) + strings.Repeat("]", depth) + after)
	}
	value := strings.Repeat(`{"arrayValue":{"values":[`, 300_000) + strings.Repeat(`]}}`, 300_000)
	span := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0102030405060708090a0b0c0d0e0f10",` +
		`"spanId":"0102030405060708","attributes":[{"key":"k","value":`
	agent, operator := a.tokens[access.Agent], a.tokens[access.Operator]
	for name, body := range map[string]io.Reader{
		"resourceSpans":    nested(5_000_000, `{"resourceSpans":`, "}"),
		"an unknown field": nested(5_000_000, `{"unknown":`, "}"),
		"an attribute":     strings.NewReader(span + value + "}]}]}]}]}"),
	} {
		a.refused(t, "OTLP, "+name, a.export(t, agent, body), http.StatusBadRequest)
	}
	note, plan := "http://"+a.api+mute, "http://"+a.api+protocol.Path+"x"
	a.refused(t, "API", a.do(t, http.MethodPut, note, operator, nested(30_000, `{"text":`, "}")))
	a.refused(t, "API, larger", a.do(t, http.MethodPut, note, operator, nested(3_000_000, `{"text":`, "}")))
	a.refused(t, "agents", a.do(t, http.MethodPut, plan, agent, nested(1_000_000, `{"service":`, "}")))
}

// paths requests files outside the served directories.
func (a *target) paths(t *testing.T) {
	for name, address := range a.listeners() {
		for _, path := range []string{
			"/../../../../etc/passwd", "/api/v1/../../../../etc/passwd", "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
			"/api/v1/traces/..%2f..%2f..%2fetc%2fpasswd", "/api/v1/openapi.yaml/../../../../etc/passwd",
			"/api/v1/openapi.yaml%00.html", "//etc/passwd", "/..\\..\\etc\\passwd", "/tokens.json",
			"/sampling/../../tokens.json",
		} {
			r := raw(t, address, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"+
				"Authorization: Bearer "+a.tokens[access.Admin]+"\r\n\r\n", "", 0)
			if r != nil && r.code >= 300 && r.code < 400 { // to the cleaned path
				continue
			}
			a.refused(t, name+": "+path, r)
		}
	}
}

// unauthorized calls every operation without a token, with an unknown token, and with a token of an insufficient role.
func (a *target) unauthorized(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join("..", "api", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(method, url, token string, want int) {
		a.refused(t, method+" "+url, a.do(t, method, url, token, strings.NewReader("{}")), want)
	}
	wrong := map[access.Role]access.Role{
		access.Agent: access.Viewer, access.Viewer: access.Agent, access.Operator: access.Viewer,
		access.Admin: access.Operator,
	}
	try := func(method, url string, needed access.Role) {
		refuse(method, url, "", http.StatusUnauthorized)
		refuse(method, url, "sibyl_guessed", http.StatusUnauthorized)
		refuse(method, url, a.tokens[wrong[needed]], http.StatusForbidden)
	}
	param := regexp.MustCompile(`\{[a-z_]+\}`)
	tried := 0
	for pattern, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			role, _ := op.Extensions["x-role"].(string)
			path := param.ReplaceAllString(pattern, strings.Repeat("1", 16))
			try(method, "http://"+a.api+"/api/v1"+path, access.Role(role))
			tried++
		}
	}
	try(http.MethodGet, "http://"+a.api+"/metrics", access.Viewer)
	if tried < 30 {
		t.Errorf("tried %d operations, want at least 30", tried)
	}
	for path, method := range map[string]string{
		"": http.MethodPut, protocol.PlanPath: http.MethodGet, protocol.StatusPath: http.MethodPost,
	} {
		url := "http://" + a.api + protocol.Path + "x" + path
		refuse(method, url, "", http.StatusUnauthorized)
		refuse(method, url, a.tokens[access.Viewer], http.StatusForbidden)
	}
	for _, token := range []string{"", "sibyl_guessed", a.tokens[access.Viewer]} {
		a.refused(t, "OTLP", a.export(t, token, strings.NewReader("{}")), http.StatusUnauthorized)
		a.refusedRPC(t, "token "+token, a.rpc(t, token, "", framed(nil)), "16")
	}
}
