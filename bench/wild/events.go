package wild

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// eventKinds are the harmless events. They make requests neither slower nor fail.
var eventKinds = []string{
	"deploy", "deploy-unversioned", "restart", "scale-up",
	"scale-down", "renamed-route", "renamed-span", "new-endpoint",
	"batch-job", "traffic-shift", "failover", "healthchecks", "traffic-drop", "faster",
}

// Lengths of events that end.
const (
	batchLength = 8 * time.Minute
	dropLength  = 12 * time.Minute
)

// lasting returns the duration of an event of the given kind.
func lasting(kind string) time.Duration {
	switch kind {
	case "batch-job":
		return batchLength
	case "traffic-drop":
		return dropLength
	}
	return 2 * time.Minute
}

// event makes a harmless event happen now, to s unless its kind affects others. It returns the service that changed, or
// nil if the application has no place for the event.
func (g *generator) event(kind string, s *service) *service {
	a := g.app
	switch kind {
	case "deploy", "deploy-unversioned":
		g.deploy(s, kind == "deploy")
	case "restart":
		g.roll(s, g.now)
	case "scale-up":
		for range 1 + a.rng.IntN(2) {
			s.pods = append(s.pods, a.newPod(s, g.now))
		}
	case "scale-down":
		if len(s.pods) < 2 {
			return nil
		}
		s.pods = s.pods[:len(s.pods)-1]
	case "renamed-route":
		o := a.entry()
		o.route += []string{"/v2", "/all", "/current"}[a.rng.IntN(3)]
		return o.service
	case "renamed-span":
		return g.renameSpan()
	case "new-endpoint":
		return g.newEndpoint()
	case "batch-job":
		return g.batchJob()
	case "traffic-shift":
		return g.shiftTraffic()
	case "failover":
		g.failover()
	case "healthchecks":
		o := &operation{service: s, method: "GET", route: "/healthz", own: 0.4e6, cv: 0.3}
		a.types = append(a.types, &requestType{op: o, rate: a.requests(), nature: probe})
	case "traffic-drop":
		a.traffic = a.between(0.35, 0.6)
		g.at(g.now.Add(dropLength), func() { a.traffic = 1 })
	case "faster":
		s.ops[a.rng.IntN(len(s.ops))].own *= 0.6
	}
	return s
}

// entry returns the operation of a random request type.
func (a *app) entry() *operation {
	for {
		if t := a.types[a.rng.IntN(len(a.types))]; t.nature == request {
			return t.op
		}
	}
}

// deploy replaces the pods of a service by pods of a new version, in which one operation has one more internal span. An
// unannounced version doesn't change the attribute.
func (g *generator) deploy(s *service, announced bool) {
	if announced {
		s.versioned = true
		s.version++
	}
	o := s.ops[g.app.rng.IntN(len(s.ops))]
	inner := step{inner: "check " + words[g.app.rng.IntN(len(words))], share: 1, times: 1}
	o.steps = append([]step{inner}, o.steps...)
	o.own *= float64(len(o.steps)) / float64(len(o.steps)+1) // the work is the same
	g.roll(s, g.now)
}

// rollEvery is the time between the replacements of two pods.
const rollEvery = 30 * time.Second

// roll replaces the pods of a service, one after the other.
func (g *generator) roll(s *service, from trace.Nanos) {
	for i := range s.pods {
		at := from.Add(time.Duration(i) * rollEvery)
		replace := func() {
			if i < len(s.pods) {
				s.pods[i] = g.app.newPod(s, at)
			}
		}
		if at <= g.now {
			replace()
		} else {
			g.at(at, replace)
		}
	}
}

// renameSpan renames a random internal span and returns its service, or nil if there is no internal span.
func (g *generator) renameSpan() *service {
	type place struct {
		service *service
		step    *step
	}
	var inner []place
	for _, s := range g.app.services {
		for _, o := range s.ops {
			for i := range o.steps {
				if o.steps[i].inner != "" && !s.unseen {
					inner = append(inner, place{s, &o.steps[i]})
				}
			}
		}
	}
	if len(inner) == 0 {
		return nil
	}
	x := inner[g.app.rng.IntN(len(inner))]
	x.step.inner += " again"
	return x.service
}

// newEndpoint adds a request type with 5 to 10 % of the requests.
func (g *generator) newEndpoint() *service {
	a := g.app
	o := a.newOperation(a.services[0])
	o.route = "/beta/" + verbs[a.rng.IntN(len(verbs))]
	o.steps = a.calls(a.services[1:], 2, make(map[*service]bool))
	a.services[0].ops = append(a.services[0].ops, o)
	a.types = append(a.types, &requestType{op: o, rate: a.between(0.05, 0.1) * a.requests()})
	return o.service
}

// batchJob repeatedly runs a job of a service that calls operations one after the other.
func (g *generator) batchJob() *service {
	a := g.app
	from := a.services[1+a.rng.IntN(len(a.services)-2)]
	o := &operation{service: from, route: "nightly export"}
	for range 2 {
		to := a.services[1+a.rng.IntN(len(a.services)-1)]
		s := a.call(to.ops[a.rng.IntN(len(to.ops))])
		s.times, s.share = 10, 1
		o.steps = append(o.steps, s)
	}
	t := &requestType{op: o, rate: 0.05, nature: batch}
	a.types = append(a.types, t)
	g.at(g.now.Add(batchLength), func() {
		a.types = slices.DeleteFunc(a.types, func(x *requestType) bool { return x == t })
	})
	return from
}

// shiftTraffic moves half of the requests of the most frequent type to another one.
func (g *generator) shiftTraffic() *service {
	a := g.app
	most := a.types[0]
	for _, t := range a.types {
		if t.nature == request && t.rate > most.rate {
			most = t
		}
	}
	for {
		if t := a.types[a.rng.IntN(len(a.types))]; t.nature == request && t != most {
			t.rate += most.rate / 2
			most.rate /= 2
			return most.op.service
		}
	}
}

// failover replaces the pods of a node by new ones on other nodes.
func (g *generator) failover() {
	a := g.app
	failed := a.nodes[a.rng.IntN(len(a.nodes))]
	for _, s := range a.services {
		for i, p := range s.pods {
			if p.node != failed {
				continue
			}
			s.pods[i] = a.newPod(s, g.now)
			for s.pods[i].node == failed {
				s.pods[i].node = a.nodes[a.rng.IntN(len(a.nodes))]
			}
		}
	}
}
