package client

import (
	"testing"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// Parameters that aren't set are omitted.
func TestValues(t *testing.T) {
	q := contract.ListProblemsParams{
		Limit:  new(3),
		Sort:   new(contract.ListProblemsParamsSort("rank")),
		Closed: new(true),
		Q:      new("a & b"),
	}
	if got, want := values(q).Encode(), "closed=true&limit=3&q=a+%26+b&sort=rank"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := values(nil); len(got) != 0 {
		t.Errorf("got %v for no parameters", got)
	}
	several := contract.ListTracesParams{Attribute: &[]string{"a", "b"}}
	if got, want := values(several).Encode(), "attribute=a&attribute=b"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := values(contract.ListExemplarsParams{Group: "ab"}).Encode(), "group=ab"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
