package estate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Kinds of faults.
const (
	latency = "latency" // a link delays every packet
	jitter  = "jitter"  // a link delays packets by random times
	reset   = "reset"   // a link resets connections
	cpu     = "cpu"     // a process gets a fraction of a CPU
	pause   = "pause"   // one instance of several, or the worker of a queue, stops again and again
	lock    = "lock"    // a table of the database is locked again and again
	failure = "errors"  // a service, or a database for one service, answers with errors
	kill    = "kill"    // a process dies and returns after the window
)

// target is a place where a kind of fault can be injected.
type target struct {
	kind    string
	service string // service.name of the faulty service; of its caller if it is a database, which emits no spans
	detail  string
	// accept lists further names of the faulty service: a database is named by its system, database or address.
	accept    []string
	low, high float64 // strengths
	unit      string
	// inject disturbs the estate until ctx ends, and repairs it.
	inject func(ctx context.Context, e *estate, strength float64) error
}

// Fault is a fault to inject.
type Fault struct {
	Name     string
	target   *target
	strength float64
}

func (f *Fault) String() string {
	return fmt.Sprintf("%s: %s of %s, %.3g%s", f.Name, f.target.kind, f.target.detail, f.strength, f.target.unit)
}

// schedule returns n faults. Each kind occurs once before any kind occurs again, and so does each target of a kind.
// Faults are spread over the services. If the kind allows it, consecutive faults are in different services, because an
// incident that returns soon after its end is the same one. Strengths are log-uniform. Equal input yields an equal
// schedule.
func schedule(seed uint64, n int, targets []target) []Fault {
	r := rand.New(rand.NewPCG(seed, 2))
	var kinds []string
	byKind := make(map[string][]*target)
	for i := range targets {
		t := &targets[i]
		if byKind[t.kind] == nil {
			kinds = append(kinds, t.kind)
		}
		byKind[t.kind] = append(byKind[t.kind], t)
	}
	if len(kinds) == 0 {
		return nil
	}
	for _, k := range kinds {
		list := byKind[k]
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	var faults []Fault
	for len(faults) < n {
		r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, k := range kinds[:min(len(kinds), n-len(faults))] {
			t := next(byKind[k], faults)
			strength := t.low * math.Pow(t.high/t.low, r.Float64())
			faults = append(faults, Fault{fmt.Sprintf("%02d-%s-%s", len(faults)+1, k, t.service), t, strength})
		}
	}
	return faults
}

// next returns the target with the fewest faults so far. Among equals it avoids the service of the last fault, and then
// prefers the service with the fewest faults.
func next(targets []*target, faults []Fault) *target {
	uses, ofService := make(map[*target]int), make(map[string]int)
	last := ""
	for i := range faults {
		t := faults[i].target
		uses[t]++
		ofService[t.service]++
		last = t.service
	}
	return slices.MinFunc(targets, func(a, b *target) int {
		return cmp.Or(
			cmp.Compare(uses[a], uses[b]),
			trace.CompareBools(a.service == last, b.service == last),
			cmp.Compare(ofService[a.service], ofService[b.service]),
		)
	})
}

// Names of the databases in traces.
var (
	postgresNames = []string{"postgresql", storeDatabase, shopDatabase}
	redisNames    = []string{"redis"}
)

// targets returns the targets among the running programs, in a fixed order.
func (e *estate) targets() (list []target) {
	seen := make(map[string]bool)
	for i := range e.order {
		p := &e.order[i]
		service := p.serviceName()
		if p.name == gateway || p.external || seen[service] {
			continue
		}
		seen[service] = true
		if p.worker { // its queue backs up
			list = append(list, pauses(service, []string{p.name})...)
		} else {
			list = append(list, linkTargets(service, "the links to "+service, nil, e.linksTo(service))...)
		}
		for _, to := range p.calls {
			if q := e.programs[to]; q.external {
				list = append(list,
					linkTargets(service, "the link "+service+" to "+to, databaseNames(to), []link{{p.name, to}})...)
			}
		}
		if names := e.instances(service); len(names) > 1 {
			list = append(list, pauses(service, names)...)
			continue
		}
		list = append(list, target{
			kind:    cpu,
			service: service,
			detail:  service,
			low:     1,
			high:    2,
			unit:    " times its usual use",
			inject:  throttle(p.name),
		},
			target{kind: kill, service: service, detail: service, low: 1, high: 1, inject: killed(p.name)})
	}
	return append(list, e.serviceTargets()...)
}

func databaseNames(program string) []string {
	if program == "redis" {
		return redisNames
	}
	return postgresNames
}

// linkTargets returns the faults of links to or from one service.
func linkTargets(service, detail string, accept []string, links []link) []target {
	base := target{service: service, detail: detail, accept: accept}
	delay, random, broken := base, base, base
	delay.kind, delay.low, delay.high, delay.unit = latency, 80, 600, " ms"
	delay.inject = onLinks(links, func(strength float64) toxic {
		return toxic{Type: "latency", Attributes: map[string]any{"latency": int(strength)}}
	})
	random.kind, random.low, random.high, random.unit = jitter, 100, 600, " ms"
	random.inject = onLinks(links, func(strength float64) toxic {
		return toxic{Type: "latency", Attributes: map[string]any{"latency": int(strength), "jitter": int(strength)}}
	})
	broken.kind, broken.low, broken.high, broken.unit = reset, 0.4, 1, " of the time"
	broken.inject = resets(links)
	return []target{delay, random, broken}
}

// repairTimeout bounds the repair after a fault, which also happens after an interrupt.
const repairTimeout = 10 * time.Second

// repairContext returns a context for repairs. It outlives ctx.
func repairContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), repairTimeout)
}

// toxicName names the only toxic of a link.
const toxicName = "fault"

// disturbAll adds a toxic to the responses of links.
func (e *estate) disturbAll(ctx context.Context, links []link, x toxic) (err error) {
	x.Name, x.Stream, x.Toxicity = toxicName, "downstream", 1
	for _, l := range links {
		err = errors.Join(err, e.toxiproxy.disturb(ctx, l.String(), x))
	}
	return err
}

// healAll removes the toxics of links.
func (e *estate) healAll(ctx context.Context, links []link) (err error) {
	for _, l := range links {
		err = errors.Join(err, e.toxiproxy.heal(ctx, l.String(), toxicName))
	}
	return err
}

// onLinks returns a function that disturbs links all the time.
func onLinks(links []link, make func(strength float64) toxic) func(context.Context, *estate, float64) error {
	return func(ctx context.Context, e *estate, strength float64) error {
		if err := e.disturbAll(ctx, links, make(strength)); err != nil {
			return err
		}
		<-ctx.Done()
		repair, cancel := repairContext(ctx)
		defer cancel()
		return e.healAll(repair, links)
	}
}

// resets returns a function that resets all connections of links for a fraction of the time. Resetting a fraction of
// the connections would do little: requests reuse the connections that survive.
func resets(links []link) func(context.Context, *estate, float64) error {
	return func(ctx context.Context, e *estate, fraction float64) error {
		on, off := duty(fraction)
		return repeat(ctx, on, off,
			func(ctx context.Context) error {
				return e.disturbAll(ctx, links, toxic{Type: "reset_peer", Attributes: map[string]any{"timeout": 0}})
			},
			func(ctx context.Context) error { return e.healAll(ctx, links) })
	}
}

// pauses returns a target for each instance of a service.
func pauses(service string, names []string) (list []target) {
	for _, name := range names {
		list = append(list, target{
			kind:    pause,
			service: service,
			detail:  name,
			low:     0.5,
			high:    3,
			unit:    " s",
			inject:  paused(name),
		})
	}
	return list
}

// pauseGap is the time between the pauses of an instance.
const pauseGap = 1500 * time.Millisecond

// paused returns a function that repeatedly stops a process.
func paused(name string) func(context.Context, *estate, float64) error {
	return func(ctx context.Context, e *estate, seconds float64) error {
		p := e.processes[name]
		defer p.signal(syscall.SIGCONT)
		return repeat(ctx, time.Duration(seconds*float64(time.Second)), pauseGap,
			func(context.Context) error { p.signal(syscall.SIGSTOP); return nil },
			func(context.Context) error { p.signal(syscall.SIGCONT); return nil })
	}
}

// repeat alternates between on and off until ctx ends or one of them fails. It calls off after each call of on, even if
// ctx has ended.
func repeat(ctx context.Context, onFor, offFor time.Duration, on, off func(context.Context) error) error {
	for ctx.Err() == nil {
		err := on(ctx)
		wait(ctx, onFor)
		repair, cancel := repairContext(ctx)
		err = errors.Join(err, off(repair))
		cancel()
		if err != nil && ctx.Err() == nil {
			return err
		}
		wait(ctx, offFor)
	}
	return nil
}

// wait waits for d or the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// killed returns a function that kills a process and starts it again at the end.
func killed(name string) func(context.Context, *estate, float64) error {
	return func(ctx context.Context, e *estate, _ float64) error {
		e.group.stop(e.processes[name], 0)
		<-ctx.Done()
		repair, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		return e.start(repair, e.programs[name])
	}
}

// serviceTargets returns the faults inside of services and databases.
func (e *estate) serviceTargets() (list []target) {
	for _, name := range []string{"wiremock", "npm-origin"} {
		if e.programs[name] != nil {
			list = append(list, target{
				kind:    failure,
				service: name,
				detail:  name,
				low:     0.4,
				high:    1,
				unit:    " of the time",
				inject:  stubErrors(name),
			})
		}
	}
	for _, t := range []struct{ service, database, table string }{
		{"kinto", storeDatabase, "objects"},
		{"postgraphile", shopDatabase, "orders"},
	} {
		if e.programs[t.service] == nil {
			continue
		}
		where := "table " + t.table + " of " + t.database
		list = append(list,
			target{
				kind:    lock,
				service: t.service,
				detail:  where,
				accept:  postgresNames,
				low:     1,
				high:    5,
				unit:    " s",
				inject:  lockTable(t.database, t.table),
			},
			target{
				kind:    failure,
				service: t.service,
				detail:  where,
				accept:  postgresNames,
				low:     0.4,
				high:    1,
				unit:    " of the time",
				inject:  hideTable(t.database, t.table),
			})
	}
	return list
}

// errorPeriod is the period of switching errors on and off.
const errorPeriod = 5 * time.Second

// duty divides errorPeriod into times on and off, so that a fault is on for the given fraction.
func duty(fraction float64) (on, off time.Duration) {
	on = time.Duration(fraction * float64(errorPeriod))
	return on, errorPeriod - on
}

// stubErrors returns a function that lets WireMock answer with errors for a fraction of the time.
func stubErrors(name string) func(context.Context, *estate, float64) error {
	return func(ctx context.Context, e *estate, fraction float64) error {
		url := "http://" + local(e.port(name)) + "/__admin/mappings"
		s := stub{
			ID:       "00000000-0000-4000-8000-000000000001",
			Priority: 1,
			Request:  map[string]any{"method": "ANY", "urlPattern": ".*"},
			Response: map[string]any{"status": 500, "body": "fault"},
		}
		on, off := duty(fraction)
		return repeat(ctx, on, off,
			func(ctx context.Context) error { return sendJSON(ctx, e.client, http.MethodPost, url, s) },
			func(ctx context.Context) error { return sendJSON(ctx, e.client, http.MethodDelete, url+"/"+s.ID, nil) })
	}
}

// lockGap is the time between locks of a table.
const lockGap = 2 * time.Second

// lockTable returns a function that repeatedly locks a table exclusively.
func lockTable(database, table string) func(context.Context, *estate, float64) error {
	return func(ctx context.Context, e *estate, seconds float64) error {
		statement := fmt.Sprintf("BEGIN; LOCK TABLE %s IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(%.2f); COMMIT",
			table, seconds)
		hold := func(ctx context.Context) error { return e.execute(ctx, database, statement) }
		return repeat(ctx, lockGap, 0, hold, func(context.Context) error { return nil })
	}
}

// hideTable returns a function that renames a table for a fraction of the time.
func hideTable(database, table string) func(context.Context, *estate, float64) error {
	return func(ctx context.Context, e *estate, fraction float64) error {
		on, off := duty(fraction)
		return repeat(ctx, on, off,
			func(ctx context.Context) error {
				return e.execute(ctx, database, "ALTER TABLE "+table+" RENAME TO "+table+"_hidden")
			},
			func(ctx context.Context) error {
				return e.execute(ctx, database, "ALTER TABLE IF EXISTS "+table+"_hidden RENAME TO "+table)
			})
	}
}

// execute executes SQL in a database.
func (e *estate) execute(ctx context.Context, database, statement string) error {
	c := e.psql(database, statement)
	c.name = "fault-psql"
	return e.group.run(ctx, c)
}

// names returns the names that a suspect may have to count as the target.
func (t *target) names() []string { return slices.Concat([]string{t.service}, t.accept) }
