package cct

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// flood adds n chains of three new contexts to b, seen at time from and a second later each.
func flood(b *Builder, from trace.Nanos, n int) {
	for i := range n {
		o := Observation{Seen: from.Add(time.Duration(i) * time.Second)}
		var above trace.Context
		for k := range 3 {
			op := trace.Op(i*3 + k + 1)
			x := ContextCount{Context: above.Child(op), Parent: above, Op: op, Count: 1}
			o.Contexts, above = append(o.Contexts, x), x.Context
		}
		b.Observe(o)
	}
}

// Builders share a room: one takes at most a quarter of it, and all of them no more than there is. Each has a set, the
// empty one, until there is no room.
func TestRoomIsShared(t *testing.T) {
	room := &Room{Limit: 100}
	builders := make([]Builder, 5)
	for i := range builders {
		builders[i].Join(room)
		flood(&builders[i], 1, 20)
		if got, want := room.Used(), min(100-4, (i+1)*25); got != want {
			t.Errorf("%d contexts after builder %d, want %d", got, i, want)
		}
	}
	if room.Refused() != 5*60-96 || !room.Short() {
		t.Errorf("%d refused, short %t", room.Refused(), room.Short())
	}
	builders[0].Leave()
	flood(&builders[4], 1, 20)
	if len(builders[4].places) != 25 || room.Used() != 96 {
		t.Errorf("%d contexts in the last builder, %d in all; want 25 and 96", len(builders[4].places), room.Used())
	}
	for i := range builders[1:] {
		builders[i+1].Age(trace.Nanos(1).Add(time.Hour), time.Minute)
	}
	if room.Used() != 0 || room.sets != 0 {
		t.Errorf("%d contexts and %d sets are left, want none", room.Used(), room.sets)
	}
}

// A builder that joins a smaller room, as after a restart with less memory, forgets its oldest contexts, and none
// without its descendants.
func TestJoinForgetsTheOldest(t *testing.T) {
	var b Builder
	flood(&b, 1, 20)
	room := &Room{Limit: 40}
	b.Join(room)
	if len(b.places) != 10 || room.Used() != 10 {
		t.Fatalf("%d contexts, %d used; want 10", len(b.places), room.Used())
	}
	tree := b.Build(nil, nil)
	if len(tree.Nodes) != 10 || tree.Dropped != 0 {
		t.Errorf("%d nodes, %d dropped; want 10 and none", len(tree.Nodes), tree.Dropped)
	}
	for i := range tree.Nodes {
		if seen := tree.Nodes[i].Seen; seen < trace.Nanos(1).Add(16*time.Second) {
			t.Errorf("a context of time %d is left", seen)
		}
	}
}
