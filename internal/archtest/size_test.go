package archtest

import (
	"go/ast"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// largeLines is the number of lines above which a package of the product needs a reason in docs/ARCHITECTURE.md.
const largeLines = 3000

// TestLargePackages compares the packages that are large with the list of their reasons. Tests and generated code don't
// count.
func TestLargePackages(t *testing.T) {
	lines := make(map[string]int)
	for _, f := range goFiles(t) {
		if !f.isTest() && !ast.IsGenerated(f.syntax) && !under(f.folder, "bench") {
			lines[f.folder] += f.fset.File(f.syntax.Pos()).LineCount()
		}
	}
	maps.DeleteFunc(lines, func(_ string, n int) bool { return n <= largeLines })
	text, err := fs.ReadFile(repository, "docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "<!-- large packages:")
	list, _, _ = strings.Cut(list, "<!-- end of large packages -->")
	var explained []string
	for _, m := range regexp.MustCompile("(?m)^- `([^`]+)`: ").FindAllStringSubmatch(list, -1) {
		explained = append(explained, m[1])
	}
	slices.Sort(explained)
	if large := slices.Sorted(maps.Keys(lines)); !slices.Equal(explained, large) {
		t.Errorf("docs/ARCHITECTURE.md explains the sizes of %v, want %v", explained, large)
	}
}

// mostMethods is the maximum number of methods of a type of the product.
const mostMethods = 40

// TestMethods finds types with so many methods that they have more than one job.
func TestMethods(t *testing.T) {
	methods := make(map[string]int)
	for _, f := range goFiles(t) {
		if f.isTest() || ast.IsGenerated(f.syntax) || under(f.folder, "bench") {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && receiverOf(fn) != "" {
				methods[f.folder+"."+receiverOf(fn)]++
			}
		}
	}
	for name, n := range methods {
		if n > mostMethods {
			t.Errorf("%s has %d methods, want at most %d", name, n, mostMethods)
		}
	}
}
