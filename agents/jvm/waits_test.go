//go:build linux

package jvm_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/jvm/jvmtest"
	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

var (
	rounds = flag.Int("rounds", 60, "requests of each thread in TestWaits")
	long   = flag.Bool("long", false, "run TestWaits with the newest JVM outside of a container, too")
)

// call is a wait of testdata/waits as the thread sees it. Both identities are zero if the thread works for no sampled
// span or is a virtual thread.
type call struct {
	TID      int64
	From, To int64 // of the monotonic clock
	Trace    [16]byte
	Span     [8]byte
}

// Waits of Java threads have the spans that the threads work for, and only these, in the process and in a container.
// Waits of virtual threads and their carriers have no span.
func TestWaits(t *testing.T) {
	otel := otelAgent(t)
	libraries := []string{
		artifact(t, "io.opentelemetry:opentelemetry-api:"+otelAPIVersion),
		artifact(t, "io.opentelemetry:opentelemetry-context:"+otelAPIVersion),
		artifact(t, "io.opentelemetry:opentelemetry-common:"+otelAPIVersion),
	}
	programs, dir := java(t, "testdata/waits/Waits.java", libraries...)
	path := strings.Join(append([]string{dir}, libraries...), ":")
	newest := len(programs) - 1
	run := func(i int) []string {
		return []string{
			programs[i], "-javaagent:" + otel, fmt.Sprintf("-Drounds=%d", *rounds), "-cp", path, "waits.Waits",
		}
	}
	for i := range programs {
		if i > 0 && !*long { // the newest JVM runs in a container below
			continue
		}
		t.Run([]string{"default", "25"}[i], func(t *testing.T) {
			checkWaits(t, dir, "endpoint:http://127.0.0.1:1#", i > 0, run(i)...)
		})
	}
	t.Run("in a container", func(t *testing.T) {
		contained := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
		out, err := exec.CommandContext(t.Context(), contained[0], append(contained[1:], "true")...).CombinedOutput()
		if err != nil {
			t.Skipf("unshare: %v: %s", err, out)
		}
		checkWaits(t, dir, "", newest > 0, append(contained, run(newest)...)...)
	})
}

// checkWaits runs the program with arguments of the agent, and compares the spans of its waits.
func checkWaits(t *testing.T, dir, arguments string, virtual bool, command ...string) {
	p := openProbes(t)
	c, url := start(t, []string{
		"OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none", "OTEL_LOGS_EXPORTER=none",
		"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.8",
		"SIBYL_AGENT=" + arguments + "service:waits#waits:on#d:info",
		"OTEL_JAVAAGENT_EXTENSIONS=" + filepath.Join(dir, "sibyl-agent.jar"),
	}, command[0], command[1:]...)
	pid := uint32(c.Process.Pid)
	if command[0] == "unshare" {
		pid = childOf(t, pid)
	}
	joiner := observe(t, p, pid)
	calls, events := collectCalls(t, p, url)
	numbers := numbersOf(t, pid)
	byThread := make(map[int64][]call)
	for _, c := range calls {
		byThread[c.TID] = append(byThread[c.TID], c)
	}
	for _, list := range byThread {
		slices.SortFunc(list, func(a, b call) int { return cmp.Compare(a.From, b.From) })
	}
	var right, none, between, carried, lacking int
	for i := range events {
		e := &events[i]
		joined, ok := joiner.Join(e)
		list := byThread[numbers[e.TID]]
		if len(list) == 0 {
			continue // a thread of the JVM
		}
		if !slices.ContainsFunc(list, func(c call) bool { return c.Trace != [16]byte{} }) {
			carried++
			if ok {
				t.Errorf("a wait of a thread that carries virtual threads has the span %x %x",
					joined.Trace, joined.Parent)
			}
			continue
		}
		c := callAt(list, int64(e.End-e.WaitNs-e.RunqNs))
		switch {
		case c == nil:
			if ok {
				between++
				if !slices.ContainsFunc(list, func(c call) bool { return c.Trace == joined.Trace }) {
					t.Errorf("a wait has the trace %x, which its thread never worked for", joined.Trace)
				}
			}
		case ok && (joined.Trace != c.Trace || joined.Parent != c.Span):
			t.Errorf("a wait of %x %x has the span %x %x", c.Trace, c.Span, joined.Trace, joined.Parent)
		case ok:
			right++
		case c.Trace == [16]byte{}:
			none++
		default:
			lacking++
		}
	}
	counts := joiner.Joins()
	t.Logf("%d calls, %d events: %d with the right span, %d rightly without, %d lack theirs; "+
		"%d in spans outside of calls; %d of carriers of virtual threads",
		len(calls), len(events), right, none, lacking, between, carried)
	missing := counts.Exact
	for reason, n := range counts.Missing {
		missing += n
		if n > 0 {
			t.Logf("%s: %d", waits.Reason(reason), n)
		}
	}
	if missing != uint64(len(events)) {
		t.Errorf("%d of %d events are counted", missing, len(events))
	}
	if right < len(calls)/3 || lacking*100 > right || none == 0 || virtual && carried == 0 {
		t.Error("want nearly all waits of sampled spans to have them, and others none")
	}
}

// openProbes opens the probes of the kernel.
func openProbes(t *testing.T) *kernel.Probes {
	t.Helper()
	p, err := kernel.Open(kernel.Options{RingBytes: 1 << 24})
	if errors.Is(err, kernel.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// observe starts to observe all waits of a process of the service waits, which has a table of threads.
func observe(t *testing.T, p *kernel.Probes, pid uint32) *join.Joiner {
	t.Helper()
	joiner := join.NewJoiner("/proc", "", "here")
	joiner.Inspector.Patience = time.Minute // the machine may be busy
	if s := joiner.Service(pid); s == nil || s.Name != "waits" {
		t.Errorf("the service is %+v, want waits", s)
	}
	where, _, err := joiner.Context(pid)
	if err != nil {
		t.Fatal(err)
	}
	var thresholds waits.Thresholds
	for class := range thresholds {
		thresholds[class] = 1
	}
	spec := kernel.Spec{Thresholds: thresholds, Targets: map[uint32]kernel.Target{
		pid: {Classes: waits.All, Events: waits.All, MaxEvents: 1 << 30, Context: where},
	}}
	if err := p.Apply(spec); err != nil {
		t.Fatal(err)
	}
	return joiner
}

// Waits of an application without OpenTelemetry have the agent's spans. The agent exports each trace and span, and all
// of them wait.
func TestWaitsWithoutOpenTelemetry(t *testing.T) {
	programs, dir := java(t, "testdata/shop/Shop.java")
	p := openProbes(t)
	plane := newPlane(t, 90*time.Second)
	var mu sync.Mutex
	sent := make(map[string]string) // names by trace and span
	target := newCollector(t, func(s span) {
		mu.Lock()
		sent[fmt.Sprintf("%x %x", s.trace, s.id)] = s.name
		mu.Unlock()
	})
	arguments := "endpoint:" + plane.URL + "#otlp:" + target + `#service:waits#entry:shop\.Orders\.place#waits:on`
	c, shop := start(t, nil, programs[0], jvmtest.Agent(dir, arguments), "-cp", dir, "shop.Shop")
	plane.enable("waits/shop.Stock.take(int)", "waits/shop.Payment.charge(long)")
	await(t, "the tracepoints are applied", func() bool {
		get(t, shop+"/order")
		return plane.applied() == 2
	})
	joiner := observe(t, p, uint32(c.Process.Pid))
	const orders = 50
	waited := make(map[string]bool)
	for range orders {
		get(t, shop+"/order")
		if err := p.Events(func(e waits.Event) {
			if w, ok := joiner.Join(&e); ok {
				waited[fmt.Sprintf("%x %x", w.Trace, w.Parent)] = true
			}
		}); err != nil {
			t.Fatal(err)
		}
		if err := p.Renew(); err != nil {
			t.Fatal(err)
		}
	}
	counts := make(map[string]int)
	await(t, "all spans that waited arrive", func() bool {
		mu.Lock()
		defer mu.Unlock()
		clear(counts)
		for id := range waited {
			if sent[id] == "" {
				return false
			}
			counts[sent[id]]++
		}
		return true
	})
	if counts["Orders.place"] < orders-2 || counts["Payment.charge"] < orders-2 || counts["Stock.take"] < 3*(orders-2) {
		t.Errorf("%v waited in %d orders, each of which waits in place, in charge, and three times in take",
			counts, orders)
	}
}

// collectCalls makes the program wait, and returns its calls and the events of the probes.
func collectCalls(t *testing.T, p *kernel.Probes, url string) (calls []call, events []waits.Event) {
	t.Helper()
	answer := make(chan error, 1)
	var body bytes.Buffer
	go func() {
		r, err := http.Get(url)
		if err != nil {
			answer <- err
			return
		}
		_, err = body.ReadFrom(r.Body)
		answer <- errors.Join(err, r.Body.Close())
	}()
	read := func() {
		if err := errors.Join(p.Events(func(e waits.Event) { events = append(events, e) }), p.Renew()); err != nil {
			t.Fatal(err)
		}
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for ended := false; !ended; {
		select {
		case err := <-answer:
			if err != nil {
				t.Fatal(err)
			}
			ended = true
		case <-ticker.C:
		}
		read()
	}
	calls = make([]call, body.Len()/48)
	if err := binary.Read(&body, binary.LittleEndian, calls); err != nil || body.Len() != 0 {
		t.Fatalf("%v: %d bytes are left of the answer", err, body.Len())
	}
	return calls, events
}

// callAt returns the call that was running at time at, or nil. calls are the calls of one thread, in order.
func callAt(calls []call, at int64) *call {
	i, found := slices.BinarySearchFunc(calls, at, func(c call, at int64) int { return cmp.Compare(c.From, at) })
	if !found {
		i--
	}
	if i < 0 || at > calls[i].To {
		return nil
	}
	return &calls[i]
}

// childOf returns the ID of the only child of process pid.
func childOf(t *testing.T, pid uint32) uint32 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(child)
}

// numbersOf maps the thread IDs of process pid on the machine to the IDs that the process sees.
func numbersOf(t *testing.T, pid uint32) map[uint32]int64 {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	numbers := make(map[uint32]int64)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), "NSpid:")
		line, _, _ := strings.Cut(rest, "\n")
		fields := strings.Fields(line)
		tid, err1 := strconv.ParseUint(filepath.Base(filepath.Dir(file)), 10, 32)
		number, err2 := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		numbers[uint32(tid)] = number
	}
	return numbers
}
