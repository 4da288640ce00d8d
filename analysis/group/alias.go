package group

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits and thresholds of [Aliases].
const (
	maxAliases   = 1 << 16 // maximum number of keys; the smallest hashes of an epoch are kept
	maxVotes     = 8       // maximum number of callees per key and epoch; the smallest hashes are kept
	minAnswered  = 20      // minimum number of answered calls for an alias
	agreePercent = 90      // minimum share of the answered calls that agree
	oldVotes     = 1 << 12 // maximum number of calls per key; beyond it, the counts are halved
)

// Aliases learns from answered calls which operation answers calls to a peer, the callee named by attributes. If the
// callee stops emitting spans, calls to it keep their target, and thus their context. The zero value is empty. Aliases
// is not safe for concurrent use.
//
// An alias belongs to the place of the call: its caller, operation and peer. If the place has no alias, the alias of
// the operation and peer applies, then the alias of the service and peer, which is only a service. An alias requires at
// least minAnswered answered calls, and at least agreePercent of them must agree. Until it exists, at most half of all
// calls may be unanswered, so that calls to a third party don't get the target of other calls.
//
// Calls have no effect until their epoch ends, so that the target of a call does not depend on the order of the
// requests within an epoch.
type Aliases struct {
	known map[uint64]alias
	open  map[uint64]*votes // of the open epoch; fewer than 2·maxAliases keys
	limit uint64            // greater keys are not counted in the open epoch; 0 means no limit
}

// alias is the callee of calls with the same key.
type alias struct {
	to                          uint64 // operation, or service
	agree, answered, unanswered uint64
	settled                     bool
	seen                        trace.Nanos // end of the last epoch with calls of this key
}

// votes counts the calls with one key.
type votes struct {
	to         []vote // ascending
	answered   uint64
	unanswered uint64
}

type vote struct{ to, calls uint64 }

// Salts that distinguish the kinds of keys.
const (
	placeSalt = iota + 0x51ed2701
	operationSalt
	serviceSalt
)

func placeKey(c *observation.ContextCount) uint64 {
	return trace.Mix(trace.Mix(placeSalt, uint64(c.Parent)), trace.Mix(uint64(c.Op), uint64(c.Peer)))
}

func operationKey(c *observation.ContextCount) uint64 {
	return trace.Mix(operationSalt, trace.Mix(uint64(c.Op), uint64(c.Peer)))
}

func serviceKey(service trace.Symbol, peer trace.Op) uint64 {
	return trace.Mix(serviceSalt, trace.Mix(uint64(service), uint64(peer)))
}

// A Grouper learns from one in unsettledShare requests. From most of these, it learns only the calls of places without
// an alias; from one in settledShare requests, it learns all calls.
const (
	unsettledShare = 4
	settledShare   = 64
)

// observe learns from o if o is part of the sample. The effect depends only on o and on earlier epochs.
func (a *Aliases) observe(o *observation.Observation, table *trace.Table) {
	if key := o.Key(); key%unsettledShare == 0 {
		a.learn(o, table, key%settledShare != 0)
	}
}

// Learn counts the calls of o. table must contain the operations of o.
func (a *Aliases) Learn(o *observation.Observation, table *trace.Table) { a.learn(o, table, false) }

// learn counts the calls of o or, if unsettled is true, only its calls from places without an alias.
func (a *Aliases) learn(o *observation.Observation, table *trace.Table, unsettled bool) {
	for i := range o.Contexts {
		c := &o.Contexts[i]
		to := uint64(0)
		switch {
		case c.Answered():
			to = uint64(c.Target)
		case c.Unanswered == 0 || c.Target != c.Peer:
			continue // not a call, or answered by an alias
		}
		place := placeKey(c)
		if unsettled && a.settled(place) != 0 {
			continue
		}
		a.count(place, to, uint64(c.Count))
		a.count(operationKey(c), to, uint64(c.Count))
		if c.Peer != 0 {
			service := uint64(0)
			if to != 0 {
				service = uint64(table.Operation(c.Target).Service)
			}
			a.count(serviceKey(table.Operation(c.Op).Service, c.Peer), service, uint64(c.Count))
		}
	}
}

// count adds calls with the given key. to is their callee, or 0 if they have no answer.
func (a *Aliases) count(key, to, calls uint64) {
	if a.limit != 0 && key > a.limit {
		return
	}
	v := a.open[key]
	if v == nil {
		if a.open == nil {
			a.open = make(map[uint64]*votes)
		}
		v = &votes{}
		a.open[key] = v
		if len(a.open) >= 2*maxAliases {
			a.trim()
		}
	}
	if to == 0 {
		v.unanswered += calls
		return
	}
	v.answered += calls
	i, found := slices.BinarySearchFunc(v.to, to, func(x vote, to uint64) int { return cmp.Compare(x.to, to) })
	if !found {
		v.to = slices.Insert(v.to, i, vote{to: to})
	}
	v.to[i].calls += calls
	v.to = v.to[:min(len(v.to), maxVotes)]
}

// trim deletes all keys of the open epoch except the smallest maxAliases.
func (a *Aliases) trim() {
	if len(a.open) <= maxAliases {
		return
	}
	keys := slices.Sorted(maps.Keys(a.open))
	for _, key := range keys[maxAliases:] {
		delete(a.open, key)
	}
	a.limit = keys[maxAliases-1]
}

// EndEpoch ends the open epoch at time now. Its calls take effect from now on.
func (a *Aliases) EndEpoch(now trace.Nanos) {
	if len(a.open) == 0 {
		return
	}
	a.trim()
	if a.known == nil {
		a.known = make(map[uint64]alias)
	}
	for key, v := range a.open {
		x := a.known[key]
		x.add(v)
		x.seen = now
		a.known[key] = x
	}
	a.open, a.limit = nil, 0
	if len(a.known) > maxAliases {
		a.forget()
	}
}

// forget deletes the least recently seen keys to make room for new ones.
func (a *Aliases) forget() {
	keys := sorting.Sorted(maps.Keys(a.known), func(k, l uint64) int {
		return cmp.Or(cmp.Compare(a.known[k].seen, a.known[l].seen), cmp.Compare(l, k))
	})
	for _, key := range keys[:len(keys)-maxAliases+maxAliases/evictedShare] {
		delete(a.known, key)
	}
}

// add adds the calls v of an epoch. If fewer than half of the answered calls agree with the callee of x, the most
// frequent callee in v replaces it.
func (x *alias) add(v *votes) {
	most := vote{}
	for _, y := range v.to {
		if y.calls > most.calls {
			most = y
		}
		if y.to == x.to {
			x.agree += y.calls
		}
	}
	x.answered += v.answered
	if !x.settled {
		x.unanswered += v.unanswered
	}
	if most.to != 0 && most.to != x.to && 2*x.agree < x.answered {
		*x = alias{to: most.to, agree: most.calls, answered: v.answered, unanswered: v.unanswered}
	}
	for x.answered+x.unanswered > oldVotes {
		x.agree, x.answered, x.unanswered = x.agree/2, x.answered/2, x.unanswered/2
	}
	x.settled = x.answered >= minAnswered && 100*x.agree >= agreePercent*x.answered &&
		(x.settled || x.unanswered <= x.answered)
}

// settled returns the callee of calls with the given key, or 0 if they have no alias.
func (a *Aliases) settled(key uint64) uint64 {
	if x := a.known[key]; x.settled {
		return x.to
	}
	return 0
}

// Apply sets the targets of the unanswered calls of o according to the aliases. Calls without an alias no longer count
// as unanswered, because their callee is assumed to emit no spans. Apply is idempotent.
func (a *Aliases) Apply(o *observation.Observation, table *trace.Table) {
	for i := 0; i < len(o.Contexts); i++ {
		c := &o.Contexts[i]
		if c.Unanswered == 0 || c.Target != c.Peer {
			continue
		}
		if target := a.target(c, table); target == 0 || !o.Retarget(i, target) {
			o.Contexts[i].Unanswered = 0
		} else {
			i = -1 // the order of the contexts has changed
		}
	}
}

// target returns the target of the unanswered calls in c, or 0 if they have no alias.
func (a *Aliases) target(c *observation.ContextCount, table *trace.Table) trace.Op {
	if len(a.known) == 0 {
		return 0
	}
	if to := cmp.Or(a.settled(placeKey(c)), a.settled(operationKey(c))); to != 0 {
		return trace.Op(to)
	}
	if c.Peer == 0 {
		return 0
	}
	service := a.settled(serviceKey(table.Operation(c.Op).Service, c.Peer))
	if service == 0 {
		return 0
	}
	return table.Op(trace.Symbol(service), table.Operation(c.Peer).Name, trace.External)
}

// appendBinary appends the state of a.
func (a *Aliases) appendBinary(w *codec.Writer) {
	w.Uvarints(uint64(len(a.known)))
	for _, key := range slices.Sorted(maps.Keys(a.known)) {
		x := a.known[key]
		w.Words(key, x.to)
		w.Uvarints(x.agree, x.answered, x.unanswered)
		w.Bools(x.settled)
		w.Times(x.seen)
	}
	keys := slices.Sorted(maps.Keys(a.open))
	keys = keys[:min(len(keys), maxAliases)]
	w.Uvarints(uint64(len(keys)))
	for _, key := range keys {
		v := a.open[key]
		w.Words(key)
		w.Uvarints(v.answered, v.unanswered, uint64(len(v.to)))
		for _, y := range v.to {
			w.Words(y.to)
			w.Uvarints(y.calls)
		}
	}
}

// readAliases reads the state that appendBinary appended.
func readAliases(d *codec.Reader) (a Aliases) {
	const smallest = 2*8 + 3 + 1 + 1 // bytes
	a.known, a.open = make(map[uint64]alias), make(map[uint64]*votes)
	before := uint64(0)
	for i := range d.Count(smallest) {
		key := d.Word()
		d.Ascending(i, i > 0 && key > before)
		before = key
		x := alias{
			to:         d.Word(),
			agree:      d.Uvarint(),
			answered:   d.Uvarint(),
			unanswered: d.Uvarint(),
			settled:    d.Bool(),
			seen:       d.Time(),
		}
		if d.Bad() || x.agree > x.answered || x.answered+x.unanswered > oldVotes || x.unanswered > oldVotes {
			d.Fail()
			return Aliases{}
		}
		a.known[key] = x
	}
	for i := range d.Count(8 + 3) {
		key := d.Word()
		d.Ascending(i, i > 0 && key > before)
		before = key
		v := &votes{answered: d.Below(1 << 62), unanswered: d.Below(1 << 62)}
		for k := range d.Below(maxVotes + 1) {
			y := vote{to: d.Word(), calls: d.Below(1 << 62)}
			d.Ascending(int(k), k > 0 && y.to > v.to[len(v.to)-1].to)
			if d.Bad() {
				return Aliases{}
			}
			v.to = append(v.to, y)
		}
		a.open[key] = v
	}
	return a
}
