//go:build linux && (amd64 || arm64)

package steer

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// roleVariable makes the test binary act as a process of a test: load, service, neighbour or agent.
const roleVariable = "SIBYL_STEER_ROLE"

// caseVariable is the number of a service's case.
const caseVariable = "SIBYL_STEER_CASE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "load":
		load()
	case "service":
		service(os.Getenv(caseVariable))
	case "neighbour":
		neighbour()
	case "agent":
		s := settings(os.Getenv("SIBYL_STEER_ENDPOINT"), os.Getenv("SIBYL_STEER_PIDS"))
		s.Send = func([]join.Wait) {}
		if err := Run(context.Background(), s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// label sets the labels of the goroutine, like the library agents/tracepoint in a span.
func label(trace [16]byte) {
	ctx := pprof.WithLabels(context.Background(),
		pprof.Labels("trace_id", hex.EncodeToString(trace[:]), "span_id", "0000000000000001"))
	pprof.SetGoroutineLabels(ctx)
}

func randomTrace() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	return id
}

// load sleeps in four threads, each time for a different request, until its input ends.
func load() {
	for range 4 {
		go func() {
			runtime.LockOSThread()
			for {
				label(randomTrace())
				_ = syscall.Nanosleep(&syscall.Timespec{Nsec: 200_000}, nil)
			}
		}()
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// deadline limits how long the tests wait for other processes and the kernel.
const deadline = time.Minute

// settings select processes by their IDs, to exclude other tests on the machine.
func settings(endpoint, pids string) Settings {
	s := Settings{
		Endpoint: endpoint,
		ID:       "kernel",
		Host:     "b",
		CPULimit: 100,
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Stacks:   true,
	}
	for pid := range strings.SplitSeq(pids, ",") {
		n, _ := strconv.ParseUint(pid, 10, 32)
		s.Selection.PIDs = append(s.Selection.PIDs, uint32(n))
	}
	for c := range s.Thresholds {
		s.Thresholds[c] = 1
	}
	return s
}

func requireProbes(t *testing.T) {
	t.Helper()
	if _, err := kernel.Check(); errors.Is(err, kernel.ErrMissing) {
		t.Skip(err)
	}
}

// role starts the test binary in the named role and returns its process. The test waits for its end.
func role(t *testing.T, name string, environment ...string) *exec.Cmd {
	t.Helper()
	c, _, out := startRole(t, name, environment...)
	if name == "load" {
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// startRole is like role, but also returns the input and output of the process.
func startRole(t *testing.T, name string, environment ...string) (c *exec.Cmd, in io.Writer, out io.Reader) {
	t.Helper()
	c = exec.Command(os.Args[0])
	c.Env = append(os.Environ(), append(environment, roleVariable+"="+name)...)
	c.Stderr = os.Stderr
	input, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		if name == "agent" {
			_ = c.Process.Kill()
		}
		_ = c.Wait()
	})
	return c, input, output
}

func pidOf(c *exec.Cmd) string { return strconv.Itoa(c.Process.Pid) }

// objects returns the programs, maps and links that process pid holds, as "prog_id 7".
func objects(t *testing.T, pid string) []string {
	t.Helper()
	folder := filepath.Join("/proc", pid, "fdinfo")
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		own := ""
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if key == "prog_id" || key == "map_id" || key == "link_id" {
				if own == "" || key == "link_id" { // a link shows its program, too
					own = key + " " + strings.TrimSpace(value)
				}
			}
		}
		if own != "" {
			list = append(list, own)
		}
	}
	slices.Sort(list)
	return list
}

// exists reports whether the kernel has an object of [objects].
func exists(t *testing.T, object string) bool {
	t.Helper()
	kind, text, _ := strings.Cut(object, " ")
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	var o io.Closer
	switch kind {
	case "prog_id":
		o, err = ebpf.NewProgramFromID(ebpf.ProgramID(id))
	case "map_id":
		o, err = ebpf.NewMapFromID(ebpf.MapID(id))
	default:
		o, err = link.NewFromID(link.ID(id))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = o.Close()
	return true
}

// newLive returns an agent for the processes pids, without Sibyl.
func newLive(t *testing.T, o kernel.Options, pids ...string) *agent {
	t.Helper()
	requireProbes(t)
	p, err := kernel.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	a := newAgent(settings("", strings.Join(pids, ",")), p)
	if err := a.steering.scan(); err != nil {
		t.Fatal(err)
	}
	return a
}

// sums returns the number of intervals that the kernel has summed up.
func (a *agent) sums(t *testing.T) (n uint64) {
	t.Helper()
	r, err := a.probes.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Sums {
		n += s.Count
	}
	return n
}

// eventually repeats check until it returns true. After the deadline it fails.
func eventually(t *testing.T, expected string, check func() bool) {
	t.Helper()
	ticker, end := time.NewTicker(5*time.Millisecond), time.After(deadline)
	defer ticker.Stop()
	for !check() {
		select {
		case <-ticker.C:
		case <-end:
			t.Fatalf("not after %s: %s", deadline, expected)
		}
	}
}

// A thousand plans don't leak a program, map, link or file. With an empty plan nothing is attached, and nothing is
// counted while the load continues.
func TestPlanChanges(t *testing.T) {
	var pids []string
	for _, service := range []string{"orders", "cart"} {
		pids = append(pids, pidOf(role(t, "load", "OTEL_SERVICE_NAME="+service)))
	}
	a := newLive(t, kernel.Options{}, pids...)
	own := strconv.Itoa(os.Getpid())
	ids := func(i int) []string {
		return [][]string{
			nil,
			{"orders/kernel/sleep"},
			{"orders/kernel/sleep", "cart/kernel/sleep"},
			{"cart/kernel/runqueue", "orders/kernel/preempted"},
		}[i%4]
	}
	a.steering.Apply(planOf(1))
	before := objects(t, own)
	const plans = 1000
	for i := range plans {
		a.steering.Apply(planOf(int64(i+2), ids(i)...))
		if err := a.steering.failure; err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			if err := a.readEvents(); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.steering.Apply(planOf(plans+2, "orders/kernel/sleep"))
	on := objects(t, own)
	since := a.sums(t)
	eventually(t, "sleeps are counted", func() bool { return a.sums(t) > since })
	a.steering.Apply(planOf(plans + 3))
	after := objects(t, own)
	if !slices.Equal(before, after) || len(on) <= len(after) {
		t.Errorf("before %q,\nwith a plan %q,\nafter %q", before, on, after)
	}
	since = a.sums(t)
	if err := a.readEvents(); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Nanosleep(&syscall.Timespec{Nsec: 20e6}, nil) // of the load: a hundred sleeps of each thread
	if n := a.sums(t); n != since {
		t.Errorf("%d intervals after the last switch", n-since)
	}
	if err := a.probes.Events(func(e waits.Event) { t.Errorf("%+v", e) }); err != nil {
		t.Error(err)
	}
}

// Waits that don't fit in the ring buffer make only their own class incomplete.
func TestLostWaits(t *testing.T) {
	w := role(t, "load", "OTEL_SERVICE_NAME=orders")
	a := newLive(t, kernel.Options{RingBytes: 4096}, pidOf(w))
	a.steering.Apply(planOf(1, "orders/kernel/sleep", "orders/kernel/file"))
	eventually(t, "the loss is noticed", func() bool {
		if err := a.scan(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		return len(a.steering.due) > 0
	})
	for _, o := range a.steering.Outcomes() {
		if o.State != protocol.Applied || o.Incomplete != (o.ID == "orders/kernel/sleep") ||
			o.Incomplete && (!strings.Contains(o.Reason, "the ring buffer is full") || o.Drops == 0) {
			t.Errorf("%+v", o)
		}
	}
}

// plane is a control plane that serves agents over HTTP.
type plane struct {
	*control.Plane
	url   string
	plan  search.Plan
	table trace.Table
}

func (*plane) Record(context.Context, *search.Feedback) error { return nil }

func newPlane(t *testing.T) *plane { return newPlaneFor(t, &plane{}) }

// newPlaneFor returns a control plane that reports to e.
func newPlaneFor(t *testing.T, e control.Engine) *plane {
	p := &plane{}
	p.Plane = control.New(e, control.Options{})
	p.Begin(nil)
	server := httptest.NewServer(p.Handler(func(*http.Request) (control.Identity, error) {
		return control.Identity{}, nil
	}))
	t.Cleanup(func() {
		p.Close()
		server.CloseClientConnections()
		server.Close()
	})
	p.url = server.URL
	return p
}

// on publishes a plan for half of the requests.
func (p *plane) on(ids ...string) {
	p.plan = search.Plan{
		Version: p.plan.Version + 1, Arms: []search.Arm{{Name: trace.SymbolOf([]byte(search.ArmNames[0])), Share: 0.5}},
	}
	for _, id := range ids {
		p.plan.Leases = append(p.plan.Leases, search.Lease{Tracepoint: p.table.Symbol(id)})
	}
	p.Publish(&p.plan, &p.table)
}

// applied returns the number of tracepoints that the agent applies.
func (p *plane) applied() int {
	for _, a := range p.Agents() {
		if a.State == control.Current && a.Version == p.plan.Version {
			return a.Applied
		}
	}
	return -1
}

// Sibyl's plan makes the agent send waits with their resource and stacks. They stop when the plan ends.
func TestSteeredBySibyl(t *testing.T) {
	requireProbes(t)
	w := role(t, "load", "OTEL_SERVICE_NAME=orders", "OTEL_RESOURCE_ATTRIBUTES=service.version=7")
	p := newPlane(t)
	s := settings(p.url, pidOf(w))
	sent := make(chan join.Wait, 1000)
	s.Send = func(all []join.Wait) {
		for _, x := range all {
			select {
			case sent <- x:
			default:
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, s) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "the agent registers", func() bool { return len(p.Agents()) == 1 })
	if a := p.Agents()[0]; a.Service != ServiceName || a.Tracepoints != waits.NumClasses-1 {
		t.Errorf("%+v", a)
	}
	p.on("orders/kernel/sleep")
	half := protocol.Plan{Arms: []protocol.Arm{{Share: 0.5}}}
	timeout := time.After(deadline)
	for waited := false; !waited; {
		select {
		case x := <-sent:
			if x.Part.Class != waits.Sleep || x.Part.End <= x.Part.Start || x.TID == 0 || x.Parent != [8]byte{7: 1} ||
				x.Quality != join.Exact {
				t.Fatalf("%+v", x)
			}
			if protocol.RandomnessOf(x.Trace).Arm(&half) != 0 {
				t.Fatalf("the plan does not enable trace %x", x.Trace)
			}
			version := slices.Contains(x.Service.Attributes, join.Attribute{Key: "service.version", Value: "7"})
			host := slices.Contains(x.Service.Attributes, join.Attribute{Key: "host.name", Value: "b"})
			if x.Service.Name != "orders" || !version || !host {
				t.Fatalf("%+v", x.Service)
			}
			sleeps := func(f string) bool { return strings.Contains(f, "Nanosleep") }
			waited = x.Part.End-x.Part.Start >= 200_000 && slices.ContainsFunc(x.Frames, sleeps)
		case <-timeout:
			t.Fatal("no sleep with a stack")
		}
	}
	eventually(t, "the status is reported", func() bool { return p.applied() == 1 })
	p.on()
	eventually(t, "the plan ends", func() bool { return p.applied() == 0 })
	for len(sent) > 0 {
		<-sent
	}
	_ = syscall.Nanosleep(&syscall.Timespec{Nsec: int64(2 * tick)}, nil)
	if n := len(sent); n > 0 {
		t.Errorf("%d waits after the end", n)
	}
}

// An agent that is killed repeatedly while its lease runs leaves nothing in the kernel, and the next agent takes its
// place.
func TestKilledAgent(t *testing.T) {
	requireProbes(t)
	w := role(t, "load", "OTEL_SERVICE_NAME=orders")
	p := newPlane(t)
	environment := []string{"SIBYL_STEER_ENDPOINT=" + p.url, "SIBYL_STEER_PIDS=" + pidOf(w)}
	p.on("orders/kernel/sleep")
	for range 3 {
		begun := time.Now()
		agent := role(t, "agent", environment...)
		eventually(t, "the agent applies the plan", func() bool {
			return slices.ContainsFunc(p.Agents(), func(a control.Agent) bool {
				return a.Since.After(begun) && a.Applied == 1
			})
		})
		left := objects(t, pidOf(agent))
		if !slices.ContainsFunc(left, func(o string) bool { return strings.HasPrefix(o, "link_id") }) {
			t.Fatalf("the agent has no links: %q", left)
		}
		if err := agent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = agent.Wait()
		eventually(t, "the kernel removes everything", func() bool {
			return !slices.ContainsFunc(left, func(o string) bool { return exists(t, o) })
		})
	}
}

// A process in a container's cgroup is selected, and its service has the names of pod and container.
func TestContainer(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	folder := ""
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err == nil {
			folder = filepath.Join(mount, fmt.Sprintf("sibyl-pod-%d", os.Getpid()), id)
		}
	}
	if err := os.MkdirAll(folder, 0o700); folder == "" || err != nil {
		t.Skip("the cgroups of this machine cannot be changed: ", err)
	}
	t.Cleanup(func() { // runs after the process has ended
		if err := errors.Join(os.Remove(folder), os.Remove(filepath.Dir(folder))); err != nil {
			t.Error(err)
		}
	})
	w := role(t, "load", "OTEL_SERVICE_NAME=orders", "KUBERNETES_SERVICE_HOST=10.0.0.1", "HOSTNAME=orders-7f9c",
		"POD_NAMESPACE=shop")
	if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(pidOf(w)), 0o600); err != nil {
		t.Skip("the cgroups of this machine cannot be changed: ", err)
	}
	a := newLive(t, kernel.Options{}, "1")
	a.steering.processes.selection = kernel.Selection{Cgroup: filepath.Dir(folder)}
	if err := a.steering.scan(); err != nil {
		t.Fatal(err)
	}
	s := a.steering.processes.all[uint32(w.Process.Pid)]
	if len(a.steering.processes.all) != 1 || s == nil {
		t.Fatalf("%v", a.steering.processes.all)
	}
	for _, want := range []join.Attribute{
		{Key: "k8s.pod.name", Value: "orders-7f9c"},
		{Key: "k8s.namespace.name", Value: "shop"},
		{Key: "container.id", Value: id},
	} {
		if !slices.Contains(s.Attributes, want) {
			t.Errorf("%+v lacks %+v", s.Attributes, want)
		}
	}
}

// Processes of an observed service that end within milliseconds neither stop the agent nor stay targets.
func TestShortProcesses(t *testing.T) {
	a := newLive(t, kernel.Options{}, "1")
	a.steering.processes.everything = true
	a.steering.Apply(planOf(1, "short/kernel/sleep", "short/kernel/runqueue"))
	for range 5 {
		c := exec.Command("sh", "-c",
			"for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.01 & done; wait")
		c.Env = append(os.Environ(), "OTEL_SERVICE_NAME=short")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := errors.Join(a.readEvents(), a.scan(t.Context(), true)); err != nil {
				t.Fatal(err)
			}
			if err := a.steering.failure; err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.scan(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for pid, x := range a.steering.targets {
		if x.service.Name == "short" {
			t.Errorf("process %d is a target", pid)
		}
	}
}
