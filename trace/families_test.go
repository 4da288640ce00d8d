package trace

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Names that differ in one part are a family if there are many of them, or if these parts look like keys. Methods,
// resources and numbered versions are not.
func TestFamilies(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	word := func(letters string) string {
		b := make([]byte, 6+random.IntN(4))
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		return string(b)
	}
	const small, mixed = "abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for _, c := range []struct {
		n    int
		name func() string
		want string // the name of its family, or empty
	}{
		{100, func() string { return "GET /blog/" + word(small) + "-" + word(small) }, "GET /blog/{}"},
		{100, func() string { return "/users/" + word(small) + "." + word(small) + "/rights" }, "/users/{}/rights"},
		{100, func() string { return "SET session:" + word(mixed) }, "SET session:{}"},
		{12, func() string { return "GET /s/1" + word(mixed) }, "GET /s/{}"},
		{9, func() string { return "GET /s/1" + word(mixed) }, ""},
		{100, func() string { return "GET /users/" + word(small) + "/notes/" + word(small) }, "GET /users/{}/notes/{}"},
		{40, func() string { return "shop.Cart/Get" + word(small) }, ""},                         // methods
		{40, func() string { return "GET /api/" + word(small) }, ""},                             // resources
		{200, func() string { return word(small) }, ""},                                          // functions
		{200, func() string { return "GET /api/" + word(small) + "/" + word(small) + "/x" }, ""}, // methods of these
	} {
		table := &Table{}
		service := table.Symbol("shop")
		for range c.n {
			op := table.Op(service, table.Symbol(c.name()), Server)
			table.Step(op, op)
		}
		got := table.Families()
		if c.want == "" && len(got) == 0 {
			continue
		}
		if want := []Family{{service, c.want, c.n}}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", c.name(), got, want)
		}
	}
}

func TestIsKeyLike(t *testing.T) {
	for part, want := range map[string]bool{
		"lQOeioB": true, "zA78Cl8": true, "r2d2": true, "xYz": true, "getOrderList": false,
		"GetCart": false, "orders": false, "ORDERS": false, "": false, "日本": false,
	} {
		if isKeyLike(part) != want {
			t.Errorf("%q: %t", part, !want)
		}
	}
}
