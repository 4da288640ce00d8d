package notify

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/incident"
)

// killedEnv is set in the process that TestKilled kills.
const killedEnv = "SIBYL_TEST_KILLED"

// killedTask is the task of the process that TestKilled kills, which reads it from killedEnv.
type killedTask struct {
	Dir       string
	URL, Mail string // of the receivers
	First     uint64 // number of the first incident; the journal before it counts as covered by a checkpoint
	Drain     bool   // adds no incidents, and ends when everything is delivered
}

var killedFormats = []string{"pagerduty", "opsgenie", "teams", "slack", "sibyl"}

func (k *killedTask) endpoints() (all []Endpoint) {
	for _, f := range killedFormats {
		e := Endpoint{Name: f, URL: k.URL + "/" + f, Format: f, AllowPrivate: true}
		if NeedsToken(f) {
			e.Token = testToken
		}
		all = append(all, e)
	}
	address := mail.Address{Address: "sibyl@example.com"}
	return append(all, Endpoint{Name: "email", Format: "email", AllowPrivate: true, Mail: &Mail{
		Server: k.Mail, Security: "none", From: address, To: []mail.Address{address},
	}})
}

// lifeOf returns the events of incident number i. Their IDs differ between incidents.
func lifeOf(i uint64) (all []*Event) {
	for step, t := range []Type{IncidentOpened, IncidentAcknowledged, IncidentSteady, IncidentClosed} {
		f := sampleIncident(t, "shop", "POST /checkout")
		f.Incident.ID, f.At = i+1, opened.Add(time.Duration(step)*time.Minute)
		if t == IncidentClosed {
			f.Incident.Enter(incident.Transition{At: f.At, State: incident.Closed, Why: incident.Recovered})
		}
		all = append(all, NewIncidentEvent(f))
	}
	return all
}

// TestKilledProcess is the process that TestKilled kills. It prints the number of each incident once its events are
// accepted.
func TestKilledProcess(t *testing.T) {
	var k killedTask
	if text := os.Getenv(killedEnv); text == "" || json.Unmarshal([]byte(text), &k) != nil {
		t.Skip("started by TestKilled only")
	}
	outbox, closeStore := openOutbox(t, k.Dir)
	n, err := New(Options{Outbox: outbox, Log: slog.New(slog.DiscardHandler)}, k.endpoints())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { n.Run(ctx); close(done) }()
	for i := k.First; !k.Drain; i++ {
		for _, e := range lifeOf(i) {
			enqueue(t, n, e)
		}
		fmt.Println("accepted", i)
		time.Sleep(25 * time.Millisecond) // else a slow disk takes minutes for the deliveries
	}
	for outbox.Stats().Waiting > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	<-done
	closeStore()
}

// arrivals records the events that each endpoint received, in the order of their first arrival.
type arrivals struct {
	mu    sync.Mutex
	first map[string][]string       // IDs by endpoint
	times map[string]map[string]int // by endpoint and ID
}

func (a *arrivals) add(endpoint, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.times[endpoint] == nil {
		a.times[endpoint] = make(map[string]int)
	}
	if a.times[endpoint][id]++; a.times[endpoint][id] == 1 {
		a.first[endpoint] = append(a.first[endpoint], id)
	}
}

// ServeHTTP records a call. The path starts with the name of the endpoint. Some answers are lost in transit.
func (a *arrivals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	a.add(strings.Split(r.URL.Path, "/")[1], r.Header.Get("Webhook-Id"))
	time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond) // so that some kills interrupt a call
	w.WriteHeader(http.StatusAccepted)
}

// mails records e-mails until all have been sent.
func (a *arrivals) mails(s *mailServer, ended <-chan struct{}) {
	for {
		select {
		case m := <-s.mails:
			a.mail(&m)
		case <-ended:
			for len(s.mails) > 0 {
				m := <-s.mails
				a.mail(&m)
			}
			return
		}
	}
}

func (a *arrivals) mail(m *delivered) {
	_, rest, _ := strings.Cut(m.text, "Message-ID: <")
	id, _, _ := strings.Cut(rest, "@")
	a.add("email", id)
}

// Every accepted event arrives at least once in every format that sends it, even if the process is killed many times.
// The events of one incident arrive in order.
func TestKilled(t *testing.T) {
	kills := 10
	if testing.Short() {
		kills = 4
	}
	a := &arrivals{first: make(map[string][]string), times: make(map[string]map[string]int)}
	web := httptest.NewServer(a)
	defer web.Close()
	s := newMailServer(t, func(s *mailServer) { s.starttls, s.auth = false, "" })
	ended := make(chan struct{})
	var recording sync.WaitGroup
	recording.Go(func() { a.mails(s, ended) })

	k := killedTask{Dir: t.TempDir(), URL: web.URL, Mail: s.Addr().String()}
	accepted := uint64(0) // incidents
	for range kills {
		accepted = max(accepted, k.run(t, 100*time.Millisecond+time.Duration(rand.IntN(400))*time.Millisecond))
		k.First = accepted - min(accepted, 3) // repeated, as after reading the journal
	}
	if accepted == 0 {
		t.Fatal("no incident was accepted")
	}
	k.Drain = true
	k.run(t, 5*time.Minute)
	close(ended)
	recording.Wait()
	web.Close()

	sent, repeated := 0, 0
	for _, e := range k.endpoints() {
		rank := make(map[string]int)
		for i, id := range a.first[e.Name] {
			rank[id] = i + 1
		}
		f := formats[e.Format]
		for i := range accepted {
			last := 0
			for _, event := range lifeOf(i) {
				if f.render(event) == nil {
					continue
				}
				if rank[event.ID] <= last {
					t.Fatalf("%s: %s of incident %d of %d arrived at place %d, the one before at %d",
						e.Name, event.Type, i, accepted, rank[event.ID], last)
				}
				last = rank[event.ID]
				sent++
				repeated += a.times[e.Name][event.ID] - 1
			}
		}
	}
	t.Logf("%d kills, %d incidents, %d events, %d repeated", kills, accepted, sent, repeated)
}

// run starts a process, kills it after life unless it has ended by then, and returns the number of accepted incidents.
// The life of the first process starts when it has accepted an incident, however long that takes.
func (k *killedTask) run(t *testing.T, life time.Duration) (accepted uint64) {
	t.Helper()
	task, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilledProcess$", "-test.count=1")
	c.Env = append(os.Environ(), killedEnv+"="+string(task))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	live := sync.OnceFunc(func() { time.AfterFunc(life, kill) })
	if k.First > 0 || k.Drain {
		live()
	}
	var text strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var i uint64
		if _, err := fmt.Sscanf(lines.Text()+"\n", "accepted %d\n", &i); err == nil {
			accepted = i + 1
			live()
		}
		fmt.Fprintln(&text, lines.Text())
	}
	if err := c.Wait(); (err != nil) == k.Drain {
		t.Fatalf("the process ended early, or did not end: %v\n%s", err, text.String())
	}
	return accepted
}
