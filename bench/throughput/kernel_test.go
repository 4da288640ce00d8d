package throughput

import (
	"errors"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/kernel"
)

// The benchmark of the kernel agent measures all of its states.
func TestKernel(t *testing.T) {
	r, err := Kernel(t.Context(), Options{Time: 50e6, Small: true})
	if errors.Is(err, kernel.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(probings) {
		t.Errorf("%d rows, want %d", len(r.Rows), len(probings))
	}
	for _, row := range r.Rows {
		if row.Values[0].Number <= 0 {
			t.Errorf("%s: %v", row.Name, row.Values)
		}
	}
}
