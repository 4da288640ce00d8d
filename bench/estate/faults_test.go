package estate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// wired returns an estate of all programs with ports, without processes.
func wired(t *testing.T) *estate {
	t.Helper()
	e := &estate{programs: make(map[string]*program), root: t.TempDir()}
	e.order = programs()
	for i := range e.order {
		e.programs[e.order[i].name] = &e.order[i]
	}
	if err := e.allocate(); err != nil {
		t.Fatal(err)
	}
	return e
}

// The schedule is a function of the seed, with every kind in each round and strengths within their range.
func TestSchedule(t *testing.T) {
	targets := wired(t).targets()
	text := func(seed uint64) string {
		var out strings.Builder
		for _, f := range schedule(seed, 24, targets) {
			fmt.Fprintln(&out, &f)
		}
		return out.String()
	}
	if first, again := text(1), text(1); first != again || first == text(2) {
		t.Error("equal seeds must yield equal schedules, and others different ones")
	}
	faults := schedule(1, 24, targets)
	if len(faults) != 24 {
		t.Fatalf("%d faults, want 24", len(faults))
	}
	kinds := []string{latency, jitter, reset, cpu, pause, lock, failure, kill}
	for round := range slices.Chunk(faults, len(kinds)) {
		seen := make(map[string]bool)
		for _, f := range round {
			seen[f.target.kind] = true
			if f.strength < f.target.low || f.strength > f.target.high {
				t.Errorf("%s: strength out of range", &f)
			}
		}
		if len(seen) != len(kinds) {
			t.Errorf("a round with %d kinds, want %d", len(seen), len(kinds))
		}
	}
	perService := make(map[string]int)
	for i := range faults {
		service := faults[i].target.service
		perService[service]++
		// Only one service can be paused.
		if i > 0 && faults[i].target.kind != pause && service == faults[i-1].target.service {
			t.Errorf("%s follows %s", &faults[i], &faults[i-1])
		}
	}
	if len(perService) != 12 || slices.Max(slices.Collect(maps.Values(perService))) > 5 {
		t.Errorf("faults by service: %v, want them spread over 12", perService)
	}
	if got := schedule(1, 5, nil); got != nil {
		t.Errorf("without targets: %v", got)
	}
}

// Every instrumented service but the gateway is a target. Databases count for their callers.
func TestTargets(t *testing.T) {
	services := make(map[string]bool)
	for _, x := range wired(t).targets() {
		services[x.service] = true
		if strings.Contains(x.detail, "postgresql") && !slices.Contains(x.names(), "storedb") {
			t.Errorf("%s: accepts %v", x.detail, x.names())
		}
	}
	for _, want := range []string{
		"httpbin", "verdaccio", "npm-origin", "wiremock", "kinto",
		"datasette", "postgraphile", "registry", "orders", mailer, reports, "feed",
	} {
		if !services[want] {
			t.Errorf("no target %s", want)
		}
	}
	if services[gateway] || services["postgresql"] || services["redis"] {
		t.Errorf("targets %v", services)
	}
}

// Selecting a program also selects the programs that it calls.
func TestRequired(t *testing.T) {
	got := required(programs(), []string{"wiremock"})
	for name, want := range map[string]bool{
		"wiremock":   true,
		"kinto":      true,
		"datasette":  true,
		"postgresql": true,
		"redis":      true,
		gateway:      true,
		"verdaccio":  false,
		"httpbin-1":  false,
	} {
		if got[name] != want {
			t.Errorf("%s: %t, want %t", name, got[name], want)
		}
	}
	if len(required(programs(), nil)) != len(programs()) {
		t.Error("without names all programs are required")
	}
	if err := checkNames(programs(), []string{"httpbin", "nothing"}); err == nil ||
		!strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("error %v, want one about nothing", err)
	}
}

// The estate has at least eight processes, ten request types, and a callee on two paths.
func TestSize(t *testing.T) {
	if n := len(programs()); n < 8 {
		t.Errorf("%d programs", n)
	}
	if n := len(requestTypes); n < 10 {
		t.Errorf("%d request types", n)
	}
	if links := wired(t).linksTo("kinto"); len(links) < 2 {
		t.Errorf("links to kinto: %v", links)
	}
}

// Templates execute even if only some programs run.
func TestConfigs(t *testing.T) {
	e := wired(t)
	for name, file := range map[string]string{
		"verdaccio": "verdaccio.yaml",
		"kinto":     "kinto.ini", "registry": "registry.yml", "orders": "orders.py",
		mailer: "orders.py", reports: "orders.py", "feed": "feed.py",
	} {
		if err := os.MkdirAll(e.dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := e.writeConfig(name, file); err != nil {
			t.Error(err)
		}
	}
}

// The gateway forwards the paths of the running programs only, to all of their instances, and its spans include the
// answers to failed requests.
func TestGateway(t *testing.T) {
	e := wired(t)
	if err := os.MkdirAll(e.dir(gateway), 0o755); err != nil {
		t.Fatal(err)
	}
	config := func() string {
		if err := configureGateway(e); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(e.dir(gateway), "caddy.json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	all := config()
	for _, want := range []string{local(e.link(gateway, "httpbin-3")), `"/store/*"`, `"errors":{"routes"`} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in %s", want, all)
		}
	}
	e.order = slices.DeleteFunc(e.order, func(p program) bool { return p.serviceName() == "httpbin" })
	if less := config(); strings.Contains(less, `"/bin/*"`) || !strings.Contains(less, `"/store/*"`) {
		t.Errorf("without httpbin: %s", less)
	}
}

// repeat alternates and ends switched off.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var events []string
		note := func(s string) func(context.Context) error {
			return func(context.Context) error { events = append(events, s); return nil }
		}
		if err := repeat(ctx, 3*time.Second, time.Second, note("on"), note("off")); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(events, " "), "on off on off on off"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		failed := errors.New("failed")
		err := repeat(t.Context(), 0, 0, func(context.Context) error { return failed }, note("off"))
		if !errors.Is(err, failed) {
			t.Errorf("error %v, want %v", err, failed)
		}
	})
}

// Limits are never below the kernel's minimum.
func TestQuota(t *testing.T) {
	const ms = time.Millisecond
	for cpus, want := range map[float64][2]time.Duration{
		2: {200 * ms, 100 * ms}, 0.05: {5 * ms, 100 * ms},
		0.004: {ms, 250 * ms}, 0.0001: {ms, 1000 * ms}, 0: {ms, 1000 * ms},
	} {
		if quota, period := quotaOf(cpus); quota != want[0] || period != want[1] {
			t.Errorf("%v CPUs: quota %v of %v, want %v", cpus, quota, period, want)
		}
	}
}

// A process uses the CPU time that the kernel reports to it.
func TestCPUTime(t *testing.T) {
	own := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begin, before := own(), cpuTime(os.Getpid())
	for own()-begin < 20*tick {
	}
	used, want := cpuTime(os.Getpid())-before, own()-begin
	if d := (used - want).Abs(); d > 4*tick { // user and kernel time are rounded down to ticks
		t.Errorf("used %v, want %v", used, want)
	}
	if used := cpuTime(1 << 30); used != 0 {
		t.Errorf("a process that does not exist used %v", used)
	}
}

// Both versions of control groups are written. Without one, an error leaves nothing behind.
func TestLimitCPU(t *testing.T) {
	for version, files := range map[string]map[string]string{
		"1": {"cpu/cpu.shares": ""}, "2": {"cgroup.controllers": "cpu"},
	} {
		root := t.TempDir()
		for name, text := range files {
			name = filepath.Join(root, name)
			err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644))
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := limitCPU(root, []int{1 << 30}, 0.05); err != nil {
			t.Errorf("version %s: %v", version, err)
		}
		dirs, _ := filepath.Glob(filepath.Join(root, "*", "sibylbench-*"))
		pattern, want := "cpu.cfs_quota_us", "5000"
		if version == "2" {
			dirs, _ = filepath.Glob(filepath.Join(root, "sibylbench-*"))
			pattern, want = "cpu.max", "5000 100000"
		}
		if len(dirs) != 1 {
			t.Fatalf("version %s: groups %v", version, dirs)
		}
		if text, err := os.ReadFile(filepath.Join(dirs[0], pattern)); err != nil || string(text) != want {
			t.Errorf("version %s: %s %q, %v; want %q", version, pattern, text, err, want)
		}
	}
	if _, err := limitCPU(filepath.Join(t.TempDir(), "missing"), []int{1 << 30}, 0.05); err == nil {
		t.Error("no error without control groups")
	}
}
