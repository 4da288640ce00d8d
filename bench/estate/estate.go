package estate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// estate is a set of running programs and the links between them.
type estate struct {
	environment  []string // of all programs
	installer    *installer
	group        *group
	root         string // folder of this run, which contains one for each program
	otlp         string // address that receives spans over HTTP
	postgresUser *syscall.Credential
	out          io.Writer // progress

	order     []program           // running programs, in the order of their start
	programs  map[string]*program // the same, by name
	processes map[string]*process
	ports     map[string]int // by program
	links     map[link]int   // ports
	toxiproxy *toxiproxy
	client    *http.Client
	named     bool               // programs call each other by name, not by IP address
	usualCPUs map[string]float64 // that each program uses while the service learns
}

// link is a connection between two programs through Toxiproxy.
type link struct{ from, to string }

func (l link) String() string { return l.from + "-" + l.to }

// Skipped is a program that does not run.
type Skipped struct {
	Program string `json:"program"`
	Reason  string `json:"reason"`
}

// choose selects the programs of only and the programs that they call, or all programs if only is empty. It installs
// their packages. Programs that cannot run are skipped, but without the gateway, it returns an error.
func (e *estate) choose(ctx context.Context, only []string) ([]Skipped, error) {
	all := programs()
	if err := checkNames(all, only); err != nil {
		return nil, err
	}
	wanted := required(all, only)
	failed := make(map[string]error) // by package
	var skipped []Skipped
	e.programs = make(map[string]*program)
	for i := range all {
		p := &all[i]
		if !wanted[p.name] {
			continue
		}
		if reason := e.obstacle(ctx, p, failed); reason != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if p.name == gateway {
				return nil, reason
			}
			skipped = append(skipped, Skipped{p.name, reason.Error()})
			fmt.Fprintf(e.out, "skipping %s: %s\n", p.name, reason)
			continue
		}
		e.programs[p.name] = p
		e.order = append(e.order, *p)
	}
	for _, name := range []string{"toxiproxy", "names"} {
		if err := e.installer.install(ctx, packageNamed(name)); err != nil {
			return nil, err
		}
	}
	return skipped, nil
}

// checkNames returns an error if a name in only is neither a program nor a service.
func checkNames(all []program, only []string) error {
	for _, name := range only {
		if !slices.ContainsFunc(all, func(p program) bool { return p.name == name || p.serviceName() == name }) {
			return fmt.Errorf("no program is named %q", name)
		}
	}
	return nil
}

// required returns the programs of only, the programs that they call, and the gateway. It returns all programs if only
// is empty.
func required(all []program, only []string) map[string]bool {
	wanted := map[string]bool{gateway: true}
	for _, p := range slices.Backward(all) { // callees come first
		if len(only) == 0 || slices.Contains(only, p.name) || slices.Contains(only, p.serviceName()) {
			wanted[p.name] = true
		}
		if wanted[p.name] {
			for _, to := range p.calls {
				wanted[to] = true
			}
		}
	}
	return wanted
}

// obstacle installs the packages of a program. If the program cannot run, it returns the reason.
func (e *estate) obstacle(ctx context.Context, p *program, failed map[string]error) error {
	for _, to := range p.calls {
		if e.programs[to] == nil {
			return fmt.Errorf("it needs %s", to)
		}
	}
	for _, name := range p.packages {
		if _, known := failed[name]; !known {
			failed[name] = e.installer.install(ctx, packageNamed(name))
		}
		if err := failed[name]; err != nil {
			return err
		}
	}
	return nil
}

// allocate chooses free ports for all programs, links and Toxiproxy.
func (e *estate) allocate() error {
	e.ports, e.links = make(map[string]int), make(map[link]int)
	var names []string
	var links []link
	for _, p := range e.order {
		names = append(names, p.name)
		for _, to := range e.callees(&p) {
			links = append(links, link{p.name, to})
		}
	}
	ports, err := freePorts(len(names) + len(links) + 1)
	if err != nil {
		return err
	}
	for i, name := range append(names, "toxiproxy") {
		e.ports[name] = ports[i]
	}
	for i, l := range links {
		e.links[l] = ports[len(names)+1+i]
	}
	return nil
}

// callees returns the programs that a program calls. The gateway calls all programs that serve requests from outside.
func (e *estate) callees(p *program) []string {
	if p.name != gateway {
		return p.calls
	}
	var to []string
	for _, q := range e.order {
		if q.name != gateway && !q.external && !q.worker && q.name != "npm-origin" {
			to = append(to, q.name)
		}
	}
	return to
}

// Ports lie below the kernel's range of ports for outgoing connections.
const (
	firstPort = 15_000
	portCount = 15_000
)

// freePorts returns distinct free ports of the loopback interface.
func freePorts(n int) (ports []int, err error) {
	for i, first := 0, rand.IntN(portCount); i < portCount && len(ports) < n; i++ {
		port := firstPort + (first+i)%portCount
		l, err := net.Listen("tcp4", local(port)) //nolint:noctx // it does not block
		if err != nil {
			continue // it is in use
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	if len(ports) < n {
		return nil, errors.New("too few free ports")
	}
	return ports, nil
}

// port returns the port of a program. It panics if no port was allocated.
func (e *estate) port(name string) int {
	p, ok := e.ports[name]
	if !ok {
		panic("estate: no port for " + name)
	}
	return p
}

// link returns the port of a link. It panics if there is no such link.
func (e *estate) link(from, to string) int {
	p, ok := e.links[link{from, to}]
	if !ok {
		panic("estate: no link from " + from + " to " + to)
	}
	return p
}

// dir returns the folder of a program.
func (e *estate) dir(name string) string { return filepath.Join(e.root, name) }

// boot starts Toxiproxy, the links and all programs.
func (e *estate) boot(ctx context.Context) error {
	if err := e.writeHosts(); err != nil {
		return err
	}
	e.processes = make(map[string]*process)
	e.client = &http.Client{Timeout: 15 * time.Second}
	proxy, err := e.group.start(command{
		name: "toxiproxy", path: e.installed("toxiproxy", "server"), env: e.environment,
		args: []string{"-host", "127.0.0.1", "-port", strconv.Itoa(e.port("toxiproxy"))},
	})
	if err != nil {
		return err
	}
	if err := waitReady(ctx, proxy, portReady(e.port("toxiproxy"))); err != nil {
		return err
	}
	e.toxiproxy = newToxiproxy(local(e.port("toxiproxy")))
	for l, port := range e.links {
		if err := e.toxiproxy.open(ctx, l.String(), local(port), local(e.port(l.to))); err != nil {
			return fmt.Errorf("open the link %s: %w", l, err)
		}
	}
	for i := range e.order {
		if err := e.first(ctx, &e.order[i]); err != nil {
			return err
		}
	}
	return nil
}

// first prepares and starts a program.
func (e *estate) first(ctx context.Context, p *program) error {
	fmt.Fprintf(e.out, "starting %s\n", p.name)
	if err := os.MkdirAll(e.dir(p.name), 0o755); err != nil {
		return err
	}
	if err := e.configure(p); err != nil {
		return err
	}
	for _, s := range []struct {
		commands func(*estate) ([]command, error)
		then     func(context.Context, *program) error
	}{{p.prepare, e.start}, {p.after, nil}} {
		if s.commands != nil {
			commands, err := s.commands(e)
			if err != nil {
				return fmt.Errorf("prepare %s: %w", p.name, err)
			}
			for _, c := range commands {
				c.name = p.name + "-setup"
				if err := e.group.run(ctx, c); err != nil {
					return fmt.Errorf("prepare %s: %w", p.name, err)
				}
			}
		}
		if s.then != nil {
			if err := s.then(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// configure writes the configuration of a program.
func (e *estate) configure(p *program) error {
	if p.configure == nil {
		return nil
	}
	if err := p.configure(e); err != nil {
		return fmt.Errorf("configure %s: %w", p.name, err)
	}
	return nil
}

// start starts a program and waits until it is ready.
func (e *estate) start(ctx context.Context, p *program) error {
	if err := e.configure(p); err != nil {
		return err
	}
	c := p.command(e)
	c.name = p.name
	if c.dir == "" {
		c.dir = e.dir(p.name)
	}
	q, err := e.group.start(c)
	if err != nil {
		return err
	}
	e.processes[p.name] = q
	if p.worker {
		return waitReady(ctx, q, q.wrote("ready."))
	}
	ready := portReady(e.port(p.name))
	if p.ready != "" {
		ready = e.pathReady("http://" + local(e.port(p.name)) + p.ready)
	}
	return waitReady(ctx, q, ready)
}

// readyTimeout bounds the start of a program, even on a busy machine.
const readyTimeout = 5 * time.Minute

// waitReady waits until a process is ready. It returns an error if the process exits or takes longer than readyTimeout.
func waitReady(ctx context.Context, p *process, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("it does not become ready"))
	defer cancel()
	for !ready(ctx) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w: %s", p.name, context.Cause(ctx), p.logTail())
		case <-p.exited:
			return p.exitError()
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}

// portReady returns a function that reports whether port accepts connections.
func portReady(port int) func(context.Context) bool {
	return func(ctx context.Context) bool {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp4", local(port))
		if err != nil {
			return false
		}
		_ = c.Close() // nothing was sent
		return true
	}
}

// pathReady returns a function that reports whether url answers with a status below 500.
func (e *estate) pathReady(url string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return false
		}
		untraced(r)
		answer, err := e.client.Do(r)
		if err != nil {
			return false
		}
		_ = answer.Body.Close() // it was not read
		return answer.StatusCode < http.StatusInternalServerError
	}
}

// linksTo returns the links to the programs with a service name, in order.
func (e *estate) linksTo(service string) (links []link) {
	for l := range maps.Keys(e.links) {
		if e.programs[l.to].serviceName() == service {
			links = append(links, l)
		}
	}
	slices.SortFunc(links, func(a, b link) int { return strings.Compare(a.String(), b.String()) })
	return links
}

// postgresUser returns the user that runs PostgreSQL. It is nil for the user of this process, unless that is root.
func postgresUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue // the next one
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}
