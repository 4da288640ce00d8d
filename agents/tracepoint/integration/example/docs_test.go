package example_test

import (
	"os"
	"strings"
	"testing"
)

// TestDocumentation checks that docs/tracepoints.md contains the program of example_test.go, which runs as a test.
func TestDocumentation(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(source), "package example_test\n")
	program, _, _ = strings.Cut(program, "\nfunc Example()")
	page, err := os.ReadFile("../../../../docs/tracepoints.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```go\npackage main\n"+program+"```\n") {
		t.Error("docs/tracepoints.md does not contain the program of example_test.go")
	}
}
