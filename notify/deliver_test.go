package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// openOutbox opens the outbox in a directory and returns a function that closes it.
func openOutbox(t *testing.T, dir string) (*store.Outbox, func()) {
	t.Helper()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	return openOutboxOn(t, disk, dir)
}

func openOutboxOn(t *testing.T, disk *pebbledb.Disk, dir string) (*store.Outbox, func()) {
	t.Helper()
	s, err := store.Open(store.Options{
		Dir:  filepath.Join(dir, "store"),
		Disk: disk,
		Log:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.OpenOutbox(store.DefaultOutboxLimits())
	if err != nil {
		t.Fatal(err)
	}
	return o, func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// eventOf returns an event about a problem.
func eventOf(problem uint64, at trace.Nanos, typ Type) *Event {
	return NewEvent(&Facts{
		Type: typ, At: at, Names: describe.New(&trace.Table{}, describe.Verbatim),
		Investigation: &search.Investigation{Subject: search.OfProblem(analysis.Hash{Lo: problem}), Opened: opened},
	})
}

// running returns a notifier that runs until the test ends.
func running(t *testing.T, endpoints ...Endpoint) *Notifier {
	t.Helper()
	outbox, closeStore := openOutbox(t, t.TempDir())
	n, err := New(Options{Outbox: outbox, Log: slog.New(slog.DiscardHandler)}, endpoints)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { n.Run(ctx); close(done) }()
	t.Cleanup(func() {
		stop()
		<-done
		closeStore()
	})
	return n
}

// receiver is a server that stores the requests to it.
type receiver struct {
	*httptest.Server
	requests chan *http.Request // the header Body contains the body
}

func newReceiver(t *testing.T, answer http.HandlerFunc) *receiver {
	r := &receiver{requests: make(chan *http.Request, 100)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		q.Header.Set("Body", string(body))
		answer(w, q)
		r.requests <- q
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) endpoint(name string) Endpoint {
	return Endpoint{Name: name, URL: r.URL, Format: "sibyl", AllowPrivate: true}
}

// next returns the next call.
func (r *receiver) next(t *testing.T) *http.Request {
	t.Helper()
	select {
	case q := <-r.requests:
		return q
	case <-time.After(time.Minute):
		t.Fatal("no call within a minute")
		return nil
	}
}

func fine(http.ResponseWriter, *http.Request) {}

// settled waits until the count of an endpoint satisfies want.
func settled(t *testing.T, n *Notifier, endpoint string, want func(Count) bool) Count {
	t.Helper()
	for range 6000 {
		if c := n.Counts()[endpoint]; want(c) {
			return c
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: %+v", endpoint, n.Counts()[endpoint])
	return Count{}
}

func enqueue(t *testing.T, n *Notifier, e *Event) {
	t.Helper()
	if err := n.Enqueue(e); err != nil {
		t.Fatal(err)
	}
}

// unreliable is a file system whose reads fail while broken is set.
type unreliable struct {
	vfs.FS

	broken atomic.Bool
}

func (*unreliable) Truncate(string, int64) error { return errors.ErrUnsupported }

// Events that cannot be stored are stored later, in order. Their number is bounded.
func TestUnstored(t *testing.T) {
	const dir = "/missing"
	mem := vfs.NewMem()
	mem.TestingSetDiskUsage(vfs.DiskUsage{TotalBytes: 1 << 40, AvailBytes: 1 << 40})
	files := &unreliable{}
	files.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if files.broken.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return syscall.EIO
		}
		return nil
	}))
	disk, err := pebbledb.NewDiskOn(files, dir)
	if err != nil {
		t.Fatal(err)
	}
	outbox, closeStore := openOutboxOn(t, disk, dir)
	for i := range 2048 { // so many that their identities are read from the disk, after the next start
		id := fmt.Sprintf("evt_%03x%029x", 2*i, i)
		if _, err := outbox.Put(opened, []store.Message{{ID: id, Endpoint: "old"}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the first start writes the identities to a file
		closeStore()
		outbox, closeStore = openOutboxOn(t, disk, dir)
	}
	defer closeStore()
	n, err := New(Options{Outbox: outbox, Log: slog.New(slog.DiscardHandler)}, []Endpoint{{
		Name: "new", URL: "https://192.0.2.1", Format: "sibyl",
	}})
	if err != nil {
		t.Fatal(err)
	}
	files.broken.Store(true)
	var want []string
	for i := range maxUnstored + 100 {
		e := eventOf(uint64(i%3+1), opened+trace.Nanos(i), Decided)
		if i >= 100 {
			want = append(want, e.ID)
		}
		n.unstored = append(n.unstored, e)
	}
	if err := n.Enqueue(); !errors.Is(err, syscall.EIO) || len(n.unstored) < maxUnstored-100 {
		t.Errorf("error %v, %d events wait, want nearly all", err, len(n.unstored))
	}
	files.broken.Store(false)
	if err := n.Enqueue(); err != nil {
		t.Error(err)
	}
	problems := make(map[search.Subject][]trace.Nanos)
	stored := make(map[string]bool)
	for _, m := range outbox.List(false, 0, 1<<20) {
		if m.Endpoint == "new" {
			stored[m.ID] = true
			problems[m.Subject] = append(problems[m.Subject], m.At)
		}
	}
	for _, id := range want {
		if !stored[id] {
			t.Errorf("event %s is lost", id)
		}
	}
	for subject, times := range problems {
		if !slices.IsSorted(times) {
			t.Errorf("the events about %v are out of order", subject)
		}
	}
}

func TestSignature(t *testing.T) {
	// The test vector of the reference implementations; the secret is whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw.
	key := []byte("\x31\xf2\x90\xf6\xbf\x06\x29\x8a\xab\x4f\x08\xd4\x3c\x3f\x08\x2c\xf6\x48\xa3\x62\xda\x2d\xa4\xb0")
	h := make(http.Header)
	sign(h, key, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got := h.Get("webhook-signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("signature %s", got)
	}
	if h.Get("webhook-id") != "msg_p5jXN8AQM9LWM0D4loKWxJek" || h.Get("webhook-timestamp") != "1614265330" {
		t.Errorf("headers %v", h)
	}
}

func TestDelivers(t *testing.T) {
	r := newReceiver(t, fine)
	e := r.endpoint("a")
	e.Key, e.Events = []byte("012345678901234567890123"), []Type{ProblemOpened}
	manager := newReceiver(t, fine)
	am := manager.endpoint("b")
	am.Format, am.URL, am.Events = "alertmanager", manager.URL+"/prefix/", []Type{ProblemOpened, ProblemClosed}
	n := running(t, e, am)
	enqueue(t, n, NewEvent(sample(Decided, "shop", "GET"))) // no endpoint subscribes to it
	event := NewEvent(sample(ProblemOpened, "shop", "GET"))
	enqueue(t, n, event)
	n.sweep()
	enqueue(t, n, event)
	q := r.next(t)
	want := make(http.Header)
	var stamp int64
	if _, err := fmt.Sscan(q.Header.Get("webhook-timestamp"), &stamp); err != nil {
		t.Fatal(err)
	}
	sign(want, e.Key, event.ID, time.Unix(stamp, 0), []byte(q.Header.Get("Body")))
	for name := range want {
		if q.Header.Get(name) != want.Get(name) {
			t.Errorf("%s: %q, want %q", name, q.Header.Get(name), want.Get(name))
		}
	}
	if q.Method != http.MethodPost || q.Header.Get("Content-Type") != "application/json" ||
		!json.Valid([]byte(q.Header.Get("Body"))) {
		t.Errorf("%s %v", q.Method, q.Header)
	}
	if path := manager.next(t).URL.Path; path != "/prefix/api/v2/alerts" {
		t.Errorf("Alertmanager was called at %s, want /prefix/api/v2/alerts", path)
	}
	if c := settled(t, n, "a", func(c Count) bool { return c.Delivered > 0 }); c !=
		(Count{Delivered: 1, Last: c.Last}) || c.Last == 0 {
		t.Errorf("%+v", c)
	}
	settled(t, n, "b", func(c Count) bool { return c.Delivered == 1 })
	for range 6000 {
		if n.options.Outbox.Stats().Waiting == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if s := n.options.Outbox.Stats(); s.Waiting+s.Dead != 0 {
		t.Errorf("%+v", s)
	}
}

// An endpoint that never answers doesn't delay messages to others.
func TestHangingEndpoint(t *testing.T) {
	release := make(chan struct{})
	slow := newReceiver(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	quick := newReceiver(t, fine)
	n := running(t, slow.endpoint("slow"), quick.endpoint("quick"))
	for i := range uint64(20) {
		enqueue(t, n, eventOf(i+1, opened, ProblemOpened))
	}
	for range 20 {
		quick.next(t)
	}
	if s := n.options.Outbox.Stats(); s.Waiting < 20 {
		t.Errorf("%+v", s)
	}
}

func TestTimeout(t *testing.T) {
	release := make(chan struct{})
	r := newReceiver(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	e := r.endpoint("a")
	c, err := newCaller(&e, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	c.client.Timeout = 50 * time.Millisecond
	if _, err := c.call(t.Context(), &store.Message{ID: "id"}); err == nil ||
		strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("%v", err)
	}
}

// endless writes an answer that ends when the client stops reading.
func endless(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusInternalServerError)
	for {
		if _, err := w.Write([]byte(strings.Repeat("a\x00", 4096))); err != nil {
			return
		}
	}
}

func TestBadAnswers(t *testing.T) {
	var reached sync.Map
	secret := newReceiver(t, func(_ http.ResponseWriter, q *http.Request) { reached.Store(q.URL.Path, true) })
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		status int
		want   string
	}{
		"500": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "oh\x1b[2Jno", http.StatusInternalServerError)
		}, 500, "500 Internal Server Error: oh\uFFFD[2Jno"},
		"endless": {endless, 500, "500 Internal Server Error: a\uFFFDa\uFFFD"},
		"redirect": {func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, secret.URL+"/latest/meta-data", http.StatusTemporaryRedirect)
		}, 307, "redirects are not followed"},
		"404":     {http.NotFound, 404, "404 Not Found"},
		"unknown": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(799) }, 799, "799"},
	} {
		r := httptest.NewServer(c.answer)
		answer, err := Try(t.Context(),
			&Endpoint{Name: "a", URL: r.URL + "/geheim", Format: "slack", AllowPrivate: true}, "", time.Now)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if err := answer.Err(); answer.Status != c.status || err == nil ||
			!strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
			t.Errorf("%s: %d, %v", name, answer.Status, err)
		}
		r.Close()
	}
	if _, ok := reached.Load("/latest/meta-data"); ok {
		t.Error("a redirect was followed")
	}
}

func TestPrivateAddresses(t *testing.T) {
	r := newReceiver(t, fine)
	_, port, _ := strings.Cut(strings.TrimPrefix(r.URL, "http://"), ":")
	for _, host := range []string{
		"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254",
		"[fd00:ec2::254]", "[fe80::1]", "10.0.0.1", "2130706433",
	} {
		_, err := Try(t.Context(),
			&Endpoint{Name: "a", URL: "http://" + host + ":" + port + "/geheim", Format: "sibyl"}, "", time.Now)
		if !errors.Is(err, ErrForbiddenAddress) && host != "2130706433" { // some resolvers fail to resolve this one
			t.Errorf("%s: %v", host, err)
		}
		if err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", host, err)
		}
	}
	if len(r.requests) != 0 {
		t.Error("the server was reached")
	}
}

func TestPublic(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "64:ff9b::808:808": true, "172.32.0.1": true, "100.63.0.1": true,
		"127.9.9.9": false, "172.16.0.1": false, "192.168.1.1": false,
		"100.100.100.200": false, "192.0.0.192": false, "224.0.0.1": false,
		"255.255.255.255": false, "::": false, "fe80::1%eth0": false,
		"fc00::1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b::7f00:1": false,
		"::ffff:10.0.0.1": false, "::7f00:1": false, "2002:7f00:1::": false, "ff02::1": false,
	} {
		if got := isPublic(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Unix(1_700_000_000, 0).UTC()
	for header, want := range map[string]time.Duration{
		"": 0, "120": 2 * time.Minute, "-1": 0, "x": 0, "99999999999999999999": 0, "4000000000": maxRetryAfter,
		now.Add(time.Hour).Format(http.TimeFormat): time.Hour, now.Add(-time.Hour).Format(http.TimeFormat): 0,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}

// script answers calls without a network and records them.
type script struct {
	mu     sync.Mutex // guards the fields below
	answer func(name, id string, nth int) (status int, retryAfter string)
	nth    map[string]int
	calls  []string
}

// transport returns the transport of the calls to an endpoint.
func (s *script) transport(name string) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		id := q.Header.Get("Webhook-Id")
		s.mu.Lock()
		s.nth[name+id]++
		status, after := s.answer(name, id, s.nth[name+id])
		s.calls = append(s.calls, fmt.Sprintf("%s %s %d", name, id, status))
		s.mu.Unlock()
		if status == 0 { // no answer
			<-q.Context().Done()
			return nil, q.Context().Err()
		}
		w := &http.Response{StatusCode: status, Header: make(http.Header), Body: io.NopCloser(strings.NewReader(""))}
		w.Header.Set("Retry-After", after)
		return w, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// scripted calls do in a synctest bubble. The notifier that it passes is running, and its endpoints a and b answer as
// answer says.
func scripted(t *testing.T, answer func(name, id string, nth int) (int, string), do func(n *Notifier, s *script)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n, s, stop := startScripted(t, dir, answer)
		do(n, s)
		stop()
	})
}

// startScripted starts the notifier for [scripted], with its outbox in dir. It runs until stop is called.
func startScripted(
	t *testing.T, dir string, answer func(name, id string, nth int) (int, string),
) (n *Notifier, s *script, stop func()) {
	t.Helper()
	outbox, closeStore := openOutbox(t, dir)
	s = &script{answer: answer, nth: make(map[string]int)}
	o := Options{Outbox: outbox, Log: slog.New(slog.DiscardHandler), transport: s.transport}
	n, err := New(o, scriptedEndpoints)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { n.Run(ctx); close(done) }()
	return n, s, func() {
		cancel()
		<-done
		closeStore()
	}
}

var scriptedEndpoints = []Endpoint{
	{Name: "a", URL: "http://a", Format: "sibyl"},
	{Name: "b", URL: "http://b", Format: "sibyl"},
}

// setAnswer replaces the function that answers calls.
func (s *script) setAnswer(f func(name, id string, nth int) (int, string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

func fine200(string, string, int) (int, string) { return 200, "" }

// after waits for d and returns the calls since the last call of after.
func (s *script) after(d time.Duration) []string {
	time.Sleep(d)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func TestRetriesForADay(t *testing.T) {
	down := func(name, _ string, _ int) (int, string) {
		if name == "a" {
			return 500, ""
		}
		return 200, ""
	}
	scripted(t, down, func(n *Notifier, s *script) {
		first, later := eventOf(1, opened, ProblemOpened), eventOf(1, opened+1, ProblemClosed)
		enqueue(t, n, first)
		enqueue(t, n, later)
		calls := s.after(giveUpAfter - time.Minute)
		b, a := 0, 0
		for _, c := range calls {
			switch c {
			case "a " + first.ID + " 500":
				a++
			case "b " + first.ID + " 200", "b " + later.ID + " 200":
				b++
			default:
				t.Errorf("call %s", c)
			}
		}
		if b != 2 || a < 24 || a > 300 { // the mean of the last waits is half an hour
			t.Errorf("%d calls of a, %d of b", a, b)
		}
		if s.after(time.Hour); n.options.Outbox.Stats().Dead != 2 {
			t.Errorf("%+v", n.options.Outbox.Stats())
		}
		if c := n.Counts()["b"]; c != (Count{Delivered: 2, Last: c.Last}) || c.Last == 0 {
			t.Errorf("%+v", c)
		}
		dead := n.options.Outbox.List(true, 0, 9)
		if dead[0].ID != first.ID || dead[0].Error != "500 Internal Server Error" {
			t.Errorf("%+v", dead[0])
		}
		s.setAnswer(fine200)
		if err := n.Resend(dead[0].Number); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a " + first.ID + " 200"}, s.after(0)); diff != "" {
			t.Error(diff)
		}
		if err := n.Resend(dead[0].Number); !errors.Is(err, store.ErrNoMessage) {
			t.Errorf("second Resend: error %v, want %v", err, store.ErrNoMessage)
		}
	})
}

// The first call that fails is logged as a warning with the remedy. Later failures aren't logged until a call
// succeeds.
func TestFailureIsLogged(t *testing.T) {
	var log strings.Builder
	n := &Notifier{
		options: Options{Clock: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil))},
		counts:  map[string]*Count{"a": {}},
	}
	outbox, closeStore := openOutbox(t, t.TempDir())
	defer closeStore()
	n.options.Outbox = outbox
	w := &worker{notifier: n, caller: &caller{endpoint: Endpoint{Name: "a"}}}
	private := fmt.Errorf("10.0.0.1: %w", ErrForbiddenAddress)
	fail := func(err error, want int) {
		t.Helper()
		w.failed(t.Context(), &store.Message{Endpoint: "a", Put: n.now()}, nil, err)
		if got := strings.Count(log.String(), "level=WARN msg=\"webhooks: a call failed"); got != want {
			t.Errorf("%d warnings, want %d:\n%s", got, want, log.String())
		}
	}
	fail(private, 1)
	fail(errors.New("500"), 1)
	n.count("a", func(c *Count) { c.LastError = "" })
	fail(private, 2)
	if !strings.Contains(log.String(), "set allow-private: true") {
		t.Errorf("no remedy in %s", log.String())
	}
}

// The next process delivers the events that Enqueue accepted, whether a kill came before, during or after a call.
func TestSurvivesKill(t *testing.T) {
	dir, copied := t.TempDir(), t.TempDir()
	var first, second []string
	one, two := eventOf(1, opened, ProblemOpened), eventOf(1, opened+1, ProblemClosed)
	other := eventOf(2, opened, ProblemOpened)
	synctest.Test(t, func(t *testing.T) {
		hang := func(name, id string, _ int) (int, string) {
			if name == "a" && id == one.ID {
				return 0, ""
			}
			return 200, ""
		}
		n, s, stop := startScripted(t, dir, hang)
		for _, e := range []*Event{one, two, other} {
			enqueue(t, n, e)
		}
		first = s.after(time.Second)
		if err := os.CopyFS(filepath.Join(copied, "store"), os.DirFS(filepath.Join(dir, "store"))); err != nil {
			t.Error(err)
		}
		stop()
	})
	synctest.Test(t, func(t *testing.T) {
		n, s, stop := startScripted(t, copied, fine200)
		enqueue(t, n, two) // repeated after reading the journal
		second = s.after(time.Minute)
		stop()
	})
	slices.Sort(first)
	want := []string{
		"a " + one.ID + " 0", "a " + other.ID + " 200", "b " + one.ID + " 200", "b " + other.ID + " 200",
		"b " + two.ID + " 200",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, first); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a " + one.ID + " 200", "a " + two.ID + " 200"}, second); diff != "" {
		t.Error(diff)
	}
}

func TestHonoursRetryAfter(t *testing.T) {
	busy := func(_, _ string, nth int) (int, string) {
		if nth == 1 {
			return 429, "7200"
		}
		return 200, ""
	}
	scripted(t, busy, func(n *Notifier, s *script) {
		e := eventOf(1, opened, ProblemOpened)
		enqueue(t, n, e)
		if calls := s.after(2*time.Hour - time.Second); len(calls) != 2 {
			t.Errorf("%q", calls)
		}
		if calls := s.after(2 * time.Second); len(calls) != 2 {
			t.Errorf("%q", calls)
		}
	})
}

func TestDelay(t *testing.T) {
	for failures, bound := range map[int]time.Duration{
		1: 5 * time.Second, 2: 10 * time.Second, 5: 80 * time.Second,
		10: 2560 * time.Second, 11: time.Hour, 10_000: time.Hour,
	} {
		var longest time.Duration
		for range 6000 {
			longest = max(longest, delay(failures))
		}
		if longest > bound || longest < bound/2 {
			t.Errorf("after %d failures: up to %s, want %s", failures, longest, bound)
		}
	}
}

func TestOrderOfProblem(t *testing.T) {
	flaky := func(name, id string, nth int) (int, string) {
		if nth <= int(id[5])%4+int(id[9]+name[0])%3 { // any number of failures
			return 503, ""
		}
		return 200, ""
	}
	scripted(t, flaky, func(n *Notifier, s *script) {
		var want []string
		problems := make(map[string]string) // by ID
		for i := range 40 {
			problem := uint64(i%4 + 1)
			e := eventOf(problem, opened+trace.Nanos(i), Decided)
			want = append(want, e.ID)
			problems[e.ID] = fmt.Sprint(problem)
			enqueue(t, n, e)
		}
		got := make(map[string][]string)
		for _, c := range s.after(20 * time.Hour) {
			var name, id string
			var status int
			if _, err := fmt.Sscan(c, &name, &id, &status); err != nil {
				t.Fatal(err)
			}
			if status == 200 {
				got[name+problems[id]] = append(got[name+problems[id]], id)
			}
		}
		for _, name := range []string{"a", "b"} {
			for problem := range 4 {
				var ids []string
				for i := problem; i < 40; i += 4 {
					ids = append(ids, want[i])
				}
				if diff := cmp.Diff(ids, got[fmt.Sprint(name, problem+1)]); diff != "" {
					t.Errorf("%s, problem %d: %s", name, problem+1, diff)
				}
			}
		}
	})
}

func TestGoneEndpoint(t *testing.T) {
	gone := func(name, _ string, _ int) (int, string) {
		if name == "a" {
			return 410, ""
		}
		return 200, ""
	}
	scripted(t, gone, func(n *Notifier, s *script) {
		e := eventOf(1, opened, ProblemOpened)
		enqueue(t, n, e)
		enqueue(t, n, eventOf(2, opened, ProblemOpened))
		s.after(time.Second)
		if !n.Counts()["a"].Disabled || n.Counts()["b"].Disabled {
			t.Errorf("%+v", n.Counts())
		}
		enqueue(t, n, eventOf(3, opened, ProblemOpened))
		if calls := s.after(3 * time.Hour); len(calls) != 1 || !strings.HasPrefix(calls[0], "b ") {
			t.Errorf("%q", calls)
		}
		s.setAnswer(fine200)
		configure, err := n.Prepare(scriptedEndpoints)
		if err != nil {
			t.Fatal(err)
		}
		configure()
		calls := s.after(time.Hour)
		if len(calls) != 3 || n.Counts()["a"].Delivered != 3 || n.Counts()["a"].Disabled {
			t.Errorf("%q, %+v", calls, n.Counts())
		}
	})
}

func TestReload(t *testing.T) {
	always := func(name, _ string, _ int) (int, string) {
		if name == "a" {
			return 500, ""
		}
		return 200, ""
	}
	scripted(t, always, func(n *Notifier, s *script) {
		enqueue(t, n, eventOf(1, opened, ProblemOpened))
		s.after(time.Second)
		configure, err := n.Prepare(scriptedEndpoints[1:])
		if err != nil {
			t.Fatal(err)
		}
		configure()
		s.after(2 * time.Minute)
		dead := n.options.Outbox.List(true, 0, 9)
		if len(dead) != 1 || dead[0].Endpoint != "a" || !strings.Contains(dead[0].Error, "no webhook") {
			t.Errorf("%+v", dead)
		}
		enqueue(t, n, eventOf(2, opened, ProblemOpened))
		if calls := s.after(time.Second); len(calls) != 1 || calls[0][0] != 'b' {
			t.Errorf("%q", calls)
		}
	})
	if _, err := New(Options{}, []Endpoint{scriptedEndpoints[0], scriptedEndpoints[0]}); err == nil {
		t.Error("New accepted two webhooks with one name")
	}
	for _, e := range []Endpoint{
		{Name: "x", URL: "http://a", Format: "sms"},
		{Name: "x", URL: "geheim://a", Format: "sibyl"},
		{Name: "x", URL: "http://", Format: "slack"},
	} {
		if _, err := New(Options{}, []Endpoint{e}); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

// Webhooks returns no part of an address that may be secret.
func TestWebhooks(t *testing.T) {
	outbox, closed := openOutbox(t, t.TempDir())
	defer closed()
	n, err := New(Options{Outbox: outbox}, []Endpoint{
		{
			Name:   "chat",
			URL:    "https://user:pass@hooks.example/services/T0/secret?key=1",
			Format: "slack",
			Events: []Type{Test},
			Key:    []byte("k"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outbox.Put(1, []store.Message{{ID: "1", Endpoint: "chat"}, {ID: "2", Endpoint: "other"}}); err != nil {
		t.Fatal(err)
	}
	want := []Webhook{{
		Name:    "chat",
		Format:  "slack",
		Origin:  "https://hooks.example",
		Events:  []Type{Test},
		Signed:  true,
		Waiting: 1,
	}}
	if diff := cmp.Diff(want, n.Webhooks()); diff != "" {
		t.Error(diff)
	}
}

func TestAccepted(t *testing.T) {
	for status, want := range map[int]bool{199: false, 200: true, 204: true, 299: true, 300: false, 404: false} {
		a := &Answer{Status: status}
		if err := a.Err(); (err == nil) != want {
			t.Errorf("status %d: error %v, want accepted: %t", status, err, want)
		}
	}
}

// The URL of an endpoint may already end with the path of its format.
func TestPathOfFormat(t *testing.T) {
	for address, want := range map[string]string{
		"http://a.example":                  "http://a.example/api/v2/alerts",
		"http://a.example/":                 "http://a.example/api/v2/alerts",
		"http://a.example/am":               "http://a.example/am/api/v2/alerts",
		"http://a.example/am/api/v2/alerts": "http://a.example/am/api/v2/alerts",
	} {
		c, err := newCaller(&Endpoint{Name: "a", Format: "alertmanager", URL: address}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		if c.url != want {
			t.Errorf("%s: got %s, want %s", address, c.url, want)
		}
	}
}

func TestOrigin(t *testing.T) {
	for address, want := range map[string]string{
		"https://a.example:8443/secret?key=1": "https://a.example:8443", "mailto:somebody": "", "http://%zz/": "",
	} {
		if got := origin(address); got != want {
			t.Errorf("%s: got %q, want %q", address, got, want)
		}
	}
}

// An incident that somebody accepted isn't announced as over.
func TestAcceptedIncident(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		e := Event{Type: IncidentClosed, Data: Data{Incident: &Incident{Accepted: accepted}}}
		if got := e.title(); (got == "Incident accepted as normal") != accepted {
			t.Errorf("accepted: %t; title %q", accepted, got)
		}
	}
}

// A muted incident causes no calls, except that Alertmanager is told when its alert ends.
func TestMutedIncident(t *testing.T) {
	outbox, closeStore := openOutbox(t, t.TempDir())
	defer closeStore()
	n, err := New(Options{Outbox: outbox, Log: slog.New(slog.DiscardHandler)}, []Endpoint{
		{Name: "chat", URL: "http://chat.example", Format: "slack"},
		{Name: "alerts", URL: "http://alerts.example", Format: "alertmanager"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		event        Type
		muted        bool
		chat, alerts int // messages so far
	}{
		{IncidentOpened, true, 0, 0}, {IncidentClosed, true, 0, 1}, {IncidentOpened, false, 1, 2},
	} {
		f := sampleIncident(step.event, "shop", "GET")
		f.Muted = step.muted
		enqueue(t, n, NewIncidentEvent(f))
		chat, _ := outbox.Count("chat")
		alerts, _ := outbox.Count("alerts")
		if chat != step.chat || alerts != step.alerts {
			t.Errorf("%s, muted %t: %d messages to the chat and %d alerts, want %d and %d",
				step.event, step.muted, chat, alerts, step.chat, step.alerts)
		}
	}
}
