package describe_test

import (
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// The next step follows from the strongest evidence: a deploy, an instance, the largest part of the score.
func TestAdvice(t *testing.T) {
	table := &trace.Table{}
	n := describe.New(table, describe.Verbatim)
	cart := table.Symbol("cart")
	type facts struct {
		engine.Incident

		v   *search.Investigation
		all []engine.Annotation
	}
	of := func(s compare.Suspect) *facts {
		s.Service = cart
		return &facts{Incident: engine.Incident{Incident: incident.Incident{Suspects: []compare.Suspect{s}}}}
	}
	ended := func(x *facts, last incident.Transition) *facts {
		over := *x
		over.History = []incident.Transition{{}, last}
		return &over
	}
	searched := func(x *facts, v search.Investigation) *facts {
		found := *x
		found.v = &v
		return &found
	}
	deployed := of(compare.Suspect{Own: 1})
	deployed.all = []engine.Annotation{
		{Service: cart, Version: table.Symbol("1.8.2"), Before: table.Symbol("1.8.1")},
	}
	reported := func(x engine.Annotation) *facts {
		s := of(compare.Suspect{Own: 1})
		x.Service = cart
		s.all = []engine.Annotation{x}
		return s
	}
	pod := []compare.InstancePart{{Key: table.Symbol("k8s.pod.name"), Value: table.Symbol("cart-7"), Part: 0.9}}
	few := []compare.InstancePart{{Key: table.Symbol("k8s.pod.name"), Value: table.Symbol("cart-7"), Part: 0.2}}
	closed := ended(of(compare.Suspect{Own: 1}), incident.Transition{State: incident.Closed, Why: incident.Recovered})
	merged := ended(of(compare.Suspect{Own: 1}),
		incident.Transition{State: incident.Merged, Why: incident.SameCause, Into: 0xabc})
	op := table.Op(cart, table.Symbol("GET /cart"), trace.Server)
	queue := table.Op(cart, table.Symbol("in queue"), trace.Internal)
	orders := table.Op(table.Symbol("orders"), table.Symbol("orders"), trace.External)
	place := func(share float64) search.Investigation {
		return search.Investigation{Status: search.Located, Place: search.Suspect{Op: op, Share: share}}
	}
	located := searched(of(compare.Suspect{Own: 1}), place(0.76))
	deployedAndLocated := searched(deployed, place(1))
	waiting := search.Investigation{
		Status: search.Investigating, Reason: "waiting for requests", Requested: make([]search.TracepointRequest, 3),
	}
	searching := searched(of(compare.Suspect{Out: 1}), waiting) // the first suspect is where requests enter
	acquire := table.Op(table.Symbol("ledger"), table.Symbol("ledger.acquire"), trace.Internal)
	leads := func(v search.Investigation, op trace.Op, share float64) search.Investigation {
		v.Suspects = []search.Suspect{{Op: op, Share: share}}
		return v
	}
	slight := searched(searching, leads(waiting, acquire, 0.3))
	led := searched(searching, leads(waiting, acquire, 0.94))
	// nothing inside it is known yet
	whole := searched(of(compare.Suspect{Out: 1, Operations: []compare.SuspectOperation{{Op: acquire}}}),
		leads(search.Investigation{}, acquire, 1))
	unseen := ended(deployed, incident.Transition{State: incident.Closed, Why: incident.NoTraces})
	deployedAndLed := searched(deployed, leads(search.Investigation{}, acquire, 0.94))
	starved := searched(of(compare.Suspect{Out: 1, Instances: pod}), search.Investigation{})
	over := search.Investigation{
		Status: search.Exhausted,
		Reason: "no candidates are left",
		Tried:  make([]trace.Symbol, 1),
	}
	exhausted := searched(of(compare.Suspect{Out: 1}), over)
	leading := searched(exhausted, leads(over, op, 0.43))
	over.Tried = nil
	none, noneLeading := searched(exhausted, over), searched(exhausted, leads(over, op, 0.43))
	accepted := func(by, text string) *facts {
		return ended(&facts{},
			incident.Transition{State: incident.Accepted, Why: incident.ByPerson, By: by, Text: text})
	}
	for _, c := range []struct {
		x    *facts
		want string
	}{
		{
			ended(of(compare.Suspect{Own: 1}), incident.Transition{State: incident.Steady}),
			"Look at the slow traces through cart. It has been like this for a day: if it is normal now, accept it.",
		},
		{
			none,
			"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. Sibyl found no tracepoint to try in cart. Add some to show the place.",
		},
		{
			noneLeading,
			"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. Sibyl found no tracepoint to try in cart. " +
				"Add some inside cart GET /cart, which carries 43 % of the added latency.",
		},
		{deployed, "Compare cart 1.8.2, which was just deployed, with 1.8.1"},
		{
			reported(engine.Annotation{Kind: engine.KindDeploy, Version: table.Symbol("2")}),
			"Check cart, which was just deployed (2): if it is the cause, roll it back.",
		},
		{
			reported(engine.Annotation{Kind: engine.KindFlag, Text: "new-checkout on"}),
			"Check cart, whose feature flag was just switched (new-checkout on): if it is the cause, switch it back.",
		},
		{
			reported(engine.Annotation{Kind: engine.KindChange, Text: "new limits"}),
			"Check cart, which was just changed (new limits): if it is the cause, undo the change.",
		},
		{
			of(compare.Suspect{Own: 1, Instances: pod}),
			"Compare k8s.pod.name = cart-7, which carries 90 % of the cost,",
		},
		{
			of(compare.Suspect{In: 1, From: table.Symbol("shop")}),
			"Look at what is between shop and cart: proxies, the network, and the connections and the queue of cart.",
		},
		{of(compare.Suspect{Own: 0.2, Unanswered: 0.4}), "Check whether cart runs"},
		{
			of(compare.Suspect{Own: 0.2, Errors: 0.4, Instances: few}),
			"Look at the logs of cart, and at its failed spans in your",
		},
		{of(compare.Suspect{Own: 0.3, In: 0.2, Rest: 0.2}), "Look at the network to cart"},
		{
			of(compare.Suspect{Own: 0.3, Out: 0.4}),
			"Look at the CPU limit, the connection pools and the network of cart",
		},
		{
			of(compare.Suspect{
				Score: 2, Own: 2, Operations: []compare.SuspectOperation{{Op: orders, Queue: true, Score: 2}},
			}),
			"Look at the lag of orders and at its consumer: cart takes messages late if it is slow",
		},
		{
			of(compare.Suspect{Own: 1, Operations: []compare.SuspectOperation{{Op: op, Score: 1}}}),
			"Look at cart GET /cart in a slow trace",
		},
		{
			of(compare.Suspect{Own: 1, Operations: []compare.SuspectOperation{{Op: queue, Score: 1}}}),
			"Look at the threads or workers of cart, its CPU limit",
		},
		{of(compare.Suspect{Own: 1}), "Look at the slow traces through cart"},
		{
			ended(&facts{}, incident.Transition{State: incident.Closed, Why: incident.NoTraces}),
			"Check that the application still runs and sends traces: none",
		},
		{
			unseen,
			"Check that the application still runs and sends traces: none arrived when the incident closed, so nobody knows whether the fault is gone. " +
				"Compare cart 1.8.2, which was deployed shortly before it opened, with 1.8.1: if it is the cause, roll it back.",
		},
		{
			accepted("Ann", ""),
			"Nothing to do: Ann accepted the behaviour since the onset as normal, so it may go on.",
		},
		{
			accepted("Ann", "cold caches"),
			"Nothing to do: Ann accepted the behaviour since the onset as normal (cold caches), so it may go on.",
		},
		{
			accepted("", ""),
			"Nothing to do: a person accepted the behaviour since the onset as normal, so it may go on.",
		},
		{of(compare.Suspect{Opaque: true, Rest: 1}), "Look at the metrics and logs of cart, which emits no spans"},
		{located, "Look at cart GET /cart: it carries 76 % of the added latency."},
		{
			deployedAndLocated,
			"Compare cart 1.8.2, which was just deployed, with 1.8.1: if it is the cause, roll it back. The place to look at is cart GET /cart.",
		},
		{
			searching,
			"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. " +
				"Sibyl searches further in cart, with 3 tracepoints on: waiting for requests.",
		},
		{
			slight,
			"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. Sibyl searches further in cart, with",
		},
		{
			led,
			"Look at ledger ledger.acquire: it carries 94 % of the added latency so far. Sibyl searches further, with 3 tracepoints on: waiting for requests.",
		},
		{
			whole,
			"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. Sibyl searches further in cart, with no tracepoint on: it has just begun.",
		},
		{
			deployedAndLed,
			"Compare cart 1.8.2, which was just deployed, with 1.8.1: if it is the cause, roll it back. ledger ledger.acquire carries 94 % of the added latency so far. " +
				"Sibyl searches further, with no tracepoint on: it has just begun.",
		},
		{
			starved,
			"Compare k8s.pod.name = cart-7, which carries 90 % of the cost, with the rest of cart. Sibyl searches further in cart, with no tracepoint on: it has just begun.",
		},
		{
			exhausted,
			"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. The tracepoints of cart show no more: no candidates are left.",
		},
		{
			leading,
			"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. The tracepoints of cart show no more: " +
				"no candidates are left. Add some inside cart GET /cart, which carries 43 % of the added latency.",
		},
		{closed, "Nothing to do"},
		{merged, "Look at incident 0000000000000abc"},
		{&facts{}, "Compare slow traces with usual ones"},
	} {
		got := describe.Advice(n, &c.x.Incident, c.x.v, c.x.all).String()
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
