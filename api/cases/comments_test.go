package cases

import (
	"fmt"
	"testing"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// Comments on incidents that are no longer kept make room for others. Comments on other incidents don't.
func TestCommentLimits(t *testing.T) {
	c, err := OpenComments(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxComments / maxIncidentComments {
		for k := range maxIncidentComments {
			c.all[fmt.Sprintf("%016x", i)] = append(c.all[fmt.Sprintf("%016x", i)], contract.Comment{ID: int64(k + 1)})
		}
	}
	incident, text := fmt.Sprintf("%016x", 99), contract.Comment{Text: "x"}
	if _, err := c.Add(incident, text, func(string) bool { return true }); err == nil {
		t.Error("no error beyond the limit")
	}
	if _, err := c.Add(incident, text, func(id string) bool { return id != fmt.Sprintf("%016x", 3) }); err != nil ||
		len(c.Of(fmt.Sprintf("%016x", 3))) != 0 || len(c.Of(fmt.Sprintf("%016x", 4))) == 0 {
		t.Errorf("with room to make: %v", err)
	}
	if _, err := c.Add(fmt.Sprintf("%016x", 4), text, func(string) bool { return true }); err == nil {
		t.Error("no error beyond the limit of an incident")
	}
}
