package archtest

import (
	"strings"
	"testing"
)

// TestFinds checks that the checks find violations.
func TestFinds(t *testing.T) {
	for _, c := range []struct{ file, src, want string }{
		{"trace/a.go", `import "github.com/sibyl-trace/sibyl/cct"`, "may not depend on it"},
		{"cct/a.go", `import "github.com/sibyl-trace/sibyl/analysis"`, "may not depend on it"},
		{"cct/a.go", `import "github.com/sibyl-trace/sibyl/internal/testkit/tracetest"`, "not part of the product"},
		{"engine/a.go", `import "github.com/sibyl-trace/sibyl/internal/testkit/sim"`, "not part of the product"},
		{"internal/testkit/sim/a.go", `import "github.com/sibyl-trace/sibyl/search"`, "may not depend on it"},
		{"api/a.go", `import "github.com/sibyl-trace/sibyl/cmd/sibyl"`, "commands are not imported"},
		{"search/a.go", `import "os"`, "computes on its arguments"},
		{"analysis/stats/a.go", `import "sync"`, "computes on its arguments"},
		{"cct/a.go", `import "github.com/cespare/xxhash/v2"`, "computes on its arguments"},
		{"trace/a.go", `func f() { go f() }`, "starts a goroutine"},
		{"engine/a.go", `func f() { go f() }`, "starts a goroutine"},
		{"describe/a.go", `import "sync"; func f(w *sync.WaitGroup) { w.Go(func() {}) }`, "starts a goroutine"},
		{"trace/a.go", `import "time"; var _ = time.Now`, "time.Now"},
		{"store/a.go", `import t "time"; var _ = t.Since`, "time.Since"},
		{"search/a.go", `import "math/rand/v2"; var _ = rand.Int`, "without a seed"},
		{"search/a.go", `var c chan int`, "a channel"},
		{"search/a.go", `var n [2]int; func f() { n[1] = 2 }`, "changes the package's variable n"},
		{"search/a.go", `var n int; func f() { n++ }`, "changes the package's variable n"},
		{"search/a.go", `func init() {}`, "an init function"},

		{"analysis/stats/a.go", `import "github.com/sibyl-trace/sibyl/analysis/explain"`, "may not depend on it"},
		{"ingest/journal/a.go", `import "github.com/sibyl-trace/sibyl/ingest/otlp/receiver"`, "may not depend on it"},
		{"cmd/sibyl/a.go", `import "github.com/sibyl-trace/sibyl/bench/demo"`, "not part of the product"},

		{"search/a.go", `import "math/rand/v2"; var _ = rand.New`, ""},
		{"search/a.go", `var n int; func f() { n := 1; n++ }`, ""},
		{"search/a_test.go", `import "os"`, ""},
		{"engine/live/a.go", `import "github.com/sibyl-trace/sibyl/search"; func f() { go f() }`, ""},
		{"engine/a.go", `import "sync"; func f(w *sync.WaitGroup) { w.Go(func() {}) }`, ""},
		{"analysis/group/a.go", `import "github.com/sibyl-trace/sibyl/analysis/stats"`, ""},
		{"ingest/otlp/a.go", `import "github.com/sibyl-trace/sibyl/ingest"`, ""},
	} {
		got := strings.Join(findings(parseSource(t, c.file, []byte("package a;"+c.src))), "; ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s: found %q, want %q", c.file, c.src, got, c.want)
		}
	}
}

// findings returns all violations in f.
func findings(f *file) []string {
	var all []string
	r, _ := ruleOf(f.folder)
	for _, imp := range f.imports {
		if why := violation(f, r, imp.path); why != "" {
			all = append(all, why)
		}
	}
	if r.pure && !f.isTest() {
		for _, x := range impurities(f) {
			all = append(all, x.message)
		}
	}
	if !r.clock && !f.isTest() {
		for _, x := range clockUses(f, r) {
			all = append(all, x.message)
		}
	}
	return all
}
