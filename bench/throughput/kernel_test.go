package throughput

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/kernel"
)

func TestMain(m *testing.M) {
	if os.Getenv("SIBYL_KERNEL_SERVICE") != "" {
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The benchmark of requests over HTTP measures all states of the kernel agent.
func TestKernelHTTP(t *testing.T) {
	t.Setenv("SIBYL_KERNEL_SERVICE", "1")
	r, err := KernelHTTP(t.Context(), Options{Time: 500e6, Small: true, Service: os.Args[:1]})
	if errors.Is(err, kernel.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(httpProbings) {
		t.Errorf("%d rows, want %d", len(r.Rows), len(httpProbings))
	}
	for i, row := range r.Rows {
		if row.Values[0].Number <= 0 || (row.Values[4].Number > 0) != (i > 0) {
			t.Errorf("%s: %v", row.Name, row.Values)
		}
	}
}

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
