package history

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// A service owns an address after some answers there. It keeps it while nobody answers, until another service does.
func TestResidents(t *testing.T) {
	const at = trace.Address(7)
	cart, stock := trace.Symbol(1), trace.Symbol(2)
	for _, c := range []struct {
		about  string
		epochs []map[trace.Symbol]uint64 // calls that services answered, by epoch
		want   trace.Symbol
	}{
		{"no calls", nil, 0},
		{"too few calls", []map[trace.Symbol]uint64{{cart: 2}}, 0},
		{"few calls in two epochs", []map[trace.Symbol]uint64{{cart: 2}, {cart: 1}}, cart},
		{"answers that stopped", []map[trace.Symbol]uint64{{cart: 5}, {}, {}}, cart},
		{"a proxy of two services", []map[trace.Symbol]uint64{{cart: 5, stock: 5}}, 0},
		{"a service that became a proxy", []map[trace.Symbol]uint64{{cart: 500}, {cart: 5, stock: 5}}, 0},
		{"a late answer of the former service", []map[trace.Symbol]uint64{{cart: 99, stock: 1}}, cart},
		{"an address that is used again", []map[trace.Symbol]uint64{{cart: 500}, {stock: 3}}, stock},
		{"too few calls since it is used again", []map[trace.Symbol]uint64{{cart: 500}, {stock: 2}}, 0},
	} {
		var a addresses
		for i, services := range c.epochs {
			for service, calls := range services {
				a.merge(answered(answer{at, service, false}, calls))
			}
			a.learn(Slice(i))
		}
		if got := a.service(at); got != c.want {
			t.Errorf("%s: service %d, want %d", c.about, got, c.want)
		}
	}
}

// If there are too many addresses, those seen last stay known. The state can be saved and restored.
func TestManyAddresses(t *testing.T) {
	var a addresses
	for epoch := range Slice(3) {
		all := newAnswers()
		for i := range maxAddresses/2 + 1 {
			for range 4 {
				all.count(answer{trace.Address(int(epoch)*maxAddresses + i + 1), trace.Symbol(i%5 + 1), i%3 == 0})
			}
		}
		a.merge(&all)
		a.learn(epoch)
	}
	a.merge(answered(answer{1, 2, false}, 3))
	if n := len(a.known); n > maxAddresses || n < maxAddresses/2 {
		t.Errorf("%d addresses are known, want at most %d", n, maxAddresses)
	}
	if a.service(1) != 0 || a.service(2*maxAddresses+1) == 0 {
		t.Error("the addresses that were seen last are not those that are known")
	}
	data := a.appendTo(nil)
	r := codec.NewReader(data)
	var b addresses
	b.read(r)
	if err := r.Err(); err != nil || !bytes.Equal(data, b.appendTo(nil)) {
		t.Error("the restored addresses differ", err)
	}
	if diff := cmp.Diff(a.known, b.known, cmp.AllowUnexported(resident{})); diff != "" {
		t.Error(diff)
	}
}

// answered returns an answer, counted a number of times.
func answered(x answer, times uint64) *answers {
	a := newAnswers()
	for range times {
		a.count(x)
	}
	return &a
}
