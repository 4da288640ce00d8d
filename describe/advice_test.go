package describe_test

import (
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// The next step follows from the strongest evidence: a deploy, an instance, the largest part of the score.
func TestAdvice(t *testing.T) {
	table := &trace.Table{}
	n := describe.New(table, describe.Verbatim)
	cart := table.Symbol("cart")
	of := func(s compare.Suspect) *describe.Advice {
		s.Service = cart
		return &describe.Advice{Suspects: []compare.Suspect{s}}
	}
	deployed := of(compare.Suspect{Own: 1})
	deployed.Version, deployed.Before = table.Symbol("1.8.2"), table.Symbol("1.8.1")
	pod := []compare.InstancePart{{Key: table.Symbol("k8s.pod.name"), Value: table.Symbol("cart-7"), Part: 0.9}}
	few := []compare.InstancePart{{Key: table.Symbol("k8s.pod.name"), Value: table.Symbol("cart-7"), Part: 0.2}}
	closed := of(compare.Suspect{Own: 1})
	closed.Last.State = incident.Closed
	closed.Last.Why = incident.Recovered
	merged := of(compare.Suspect{Own: 1})
	merged.Last = incident.Transition{State: incident.Merged, Why: incident.SameCause, Into: 0xabc}
	op := table.Op(cart, table.Symbol("GET /cart"), trace.Server)
	orders := table.Op(table.Symbol("orders"), table.Symbol("orders"), trace.External)
	located := of(compare.Suspect{Own: 1})
	located.Located, located.Share = op, 0.76
	deployedAndLocated := *deployed
	deployedAndLocated.Located, deployedAndLocated.Share = op, 1.2
	searching := of(compare.Suspect{Out: 1})
	searching.Searching, searching.On, searching.Doing = true, 3, "waiting for requests"
	slight, led := *searching, *searching // the first suspect is where requests enter
	acquire := table.Op(table.Symbol("ledger"), table.Symbol("ledger.acquire"), trace.Internal)
	slight.Lead, slight.LeadShare = acquire, 0.3
	led.Lead, led.LeadShare = acquire, 0.94
	whole := of(compare.Suspect{Out: 1, Operations: []compare.SuspectOperation{{Op: acquire}}})
	whole.Searching, whole.Lead, whole.LeadShare = true, acquire, 1 // nothing inside it is known yet
	unseen := *deployed
	unseen.Last = incident.Transition{State: incident.Closed, Why: incident.NoTraces}
	deployedAndLed := *deployed
	deployedAndLed.Searching, deployedAndLed.Lead, deployedAndLed.LeadShare = true, acquire, 0.94
	starved := of(compare.Suspect{Out: 1, Instances: pod})
	starved.Searching = true
	exhausted := of(compare.Suspect{Out: 1})
	exhausted.Exhausted = "no candidates are left"
	leading := *exhausted
	leading.Lead, leading.LeadShare = op, 0.43
	none, noneLeading := *exhausted, leading
	none.Untried, noneLeading.Untried = true, true
	for want, x := range map[string]*describe.Advice{
		"Look at the slow traces through cart. It has been like this for a day: if it is normal now, accept it.":                                                                   {Suspects: of(compare.Suspect{Own: 1}).Suspects, Last: incident.Transition{State: incident.Steady}},
		"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. Sibyl found no tracepoint to try in cart. Add some to show the place.": &none,
		"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. Sibyl found no tracepoint to try in cart. " +
			"Add some inside cart GET /cart, which carries 43 % of the added latency.": &noneLeading,
		"Compare cart 1.8.2, which was just deployed, with 1.8.1":        deployed,
		"Compare k8s.pod.name = cart-7, which carries 90 % of the cost,": of(compare.Suspect{Own: 1, Instances: pod}),
		"Look at what is between shop and cart: proxies, the network, and the connections and the queue of cart.": of(
			compare.Suspect{In: 1, From: table.Symbol("shop")}),
		"Check whether cart runs":                                             of(compare.Suspect{Own: 0.2, Unanswered: 0.4}),
		"Look at the logs of cart, and at its failed spans in your":           of(compare.Suspect{Own: 0.2, Errors: 0.4, Instances: few}),
		"Look at the network to cart":                                         of(compare.Suspect{Own: 0.3, In: 0.2, Rest: 0.2}),
		"Look at the CPU limit, the connection pools and the network of cart": of(compare.Suspect{Own: 0.3, Out: 0.4}),
		"Look at the lag of orders and at its consumer: cart takes messages late if it is slow": of(compare.Suspect{
			Score: 2, Own: 2, Operations: []compare.SuspectOperation{{Op: orders, Queue: true, Score: 2}},
		}),
		"Look at cart GET /cart in a slow trace":                       of(compare.Suspect{Own: 1, Operations: []compare.SuspectOperation{{Op: op, Score: 1}}}),
		"Look at the slow traces through cart":                         of(compare.Suspect{Own: 1}),
		"Check that the application still runs and sends traces: none": {Last: incident.Transition{State: incident.Closed, Why: incident.NoTraces}},
		"Check that the application still runs and sends traces: none arrived when the incident closed, so nobody knows whether the fault is gone. " +
			"Compare cart 1.8.2, which was deployed shortly before it opened, with 1.8.1: if it is the cause, roll it back.": &unseen,
		"Nothing to do: Ann accepted the behaviour since the onset as normal, so it may go on.":                                              {Last: incident.Transition{State: incident.Accepted, Why: incident.ByPerson, By: "Ann"}},
		"Nothing to do: Ann accepted the behaviour since the onset as normal (cold caches), so it may go on.":                                {Last: incident.Transition{State: incident.Accepted, Why: incident.ByPerson, By: "Ann", Text: "cold caches"}},
		"Nothing to do: a person accepted the behaviour since the onset as normal, so it may go on.":                                         {Last: incident.Transition{State: incident.Accepted, Why: incident.ByPerson}},
		"Look at the metrics and logs of cart, which emits no spans":                                                                         of(compare.Suspect{Opaque: true, Rest: 1}),
		"Look at cart GET /cart: it carries 76 % of the added latency.":                                                                      located,
		"Compare cart 1.8.2, which was just deployed, with 1.8.1: if it is the cause, roll it back. The place to look at is cart GET /cart.": &deployedAndLocated,
		"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. " +
			"Sibyl searches further in cart, with 3 tracepoints on: waiting for requests.": searching,
		"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. Sibyl searches further in cart, with":                                      &slight,
		"Look at ledger ledger.acquire: it carries 94 % of the added latency so far. Sibyl searches further, with 3 tracepoints on: waiting for requests.":                             &led,
		"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. Sibyl searches further in cart, with no tracepoint on: it has just begun.": whole,
		"Compare cart 1.8.2, which was just deployed, with 1.8.1: if it is the cause, roll it back. ledger ledger.acquire carries 94 % of the added latency so far. " +
			"Sibyl searches further, with no tracepoint on: it has just begun.": &deployedAndLed,
		"Compare k8s.pod.name = cart-7, which carries 90 % of the cost, with the rest of cart. Sibyl searches further in cart, with no tracepoint on: it has just begun.":  starved,
		"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. The tracepoints of cart show no more: no candidates are left.": exhausted,
		"Look at the CPU limit, the connection pools and the network of cart: all of its calls take longer. The tracepoints of cart show no more: " +
			"no candidates are left. Add some inside cart GET /cart, which carries 43 % of the added latency.": &leading,
		"Nothing to do":                       closed,
		"Look at incident 0000000000000abc":   merged,
		"Compare slow traces with usual ones": {},
	} {
		if got := n.Advice(x); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
