package sim

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

var (
	serviceWords = []string{
		"cart", "checkout", "catalog", "pricing", "payment", "shipping", "inventory", "search", "profile",
		"session", "offers", "ratings", "invoice", "ledger", "quota", "media", "geo", "mail", "audit", "risk",
		"loyalty", "returns", "supply", "tax", "notify", "auth", "config", "report", "stock", "order",
	}
	verbs = []string{
		"load", "validate", "resolve", "apply", "merge", "render", "fetch", "store", "check", "build", "parse",
		"match", "filter", "rank", "convert", "update", "collect", "expand", "verify", "plan",
	}
	nouns = []string{
		"Order", "Item", "Price", "User", "Rule", "Offer", "Address", "Stock", "Policy", "Quote", "Page", "Index",
		"Token", "Session", "Route", "Label", "Batch", "Entry", "Record", "Limit",
	}
	methods   = []string{"Get", "List", "Create", "Update", "Delete", "Search", "Submit", "Confirm"}
	resources = []string{
		"orders", "items", "prices", "users", "rules", "index", "journal", "blobs", "sessions",
		"queue",
	}
	remotes  = []string{"psp", "maps", "sms", "fraud", "rates", "identity", "carrier", "cdn"}
	messages = []string{"publish", "send"}
)

// namer generates names that are unique within a service.
type namer struct {
	rng  *rand.Rand
	used map[string]int
}

// unique returns base, with a number appended if base has been returned before.
func (n *namer) unique(base string) string {
	n.used[base]++
	if k := n.used[base]; k > 1 {
		return base + "_" + strconv.Itoa(k)
	}
	return base
}

func (n *namer) pick(words []string) string { return words[n.rng.IntN(len(words))] }

// httpMethod returns the HTTP method of requests for the given operation of a service.
func httpMethod(operation string) string {
	for _, reading := range []string{"Get", "List", "Search"} {
		if strings.HasPrefix(operation, reading) {
			return "GET"
		}
	}
	return "POST"
}

func (n *namer) function() string  { return n.unique(n.pick(verbs) + n.pick(nouns)) }
func (n *namer) operation() string { return n.unique(n.pick(methods) + n.pick(nouns)) }

// probe returns a name for a probe of the given kind. It includes a resource if there are many probes of the kind.
func (n *namer) probe(layer, kind string) string {
	switch kind {
	case "disk", "lock", "pool", "serialize":
		return n.unique(layer + kind + ":" + n.pick(resources))
	}
	return n.unique(layer + kind)
}
