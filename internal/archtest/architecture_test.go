package archtest

import (
	"go/ast"
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

var (
	// goFileName matches the name of a Go file in code of a document. Files in the root (there are none) would have no
	// slash.
	goFileName = regexp.MustCompile("`([\\w./-]+\\.go)`")

	// steps matches a list of steps through the code. Its indented lines are headings.
	steps = regexp.MustCompile("<!-- path:.*\n```\n([^`]+)```\n")

	// step matches a step: a file, and a function or a method in it.
	step = regexp.MustCompile(`^(\S+\.go) +(?:(\w+)\.)?(\w+) `)
)

// docs/ARCHITECTURE.md refers to existing Go files by their path from the root, and to existing functions on its paths
// through the code.
func TestArchitectureNames(t *testing.T) {
	text, err := fs.ReadFile(repository, "docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range goFileName.FindAllStringSubmatch(string(text), -1) {
		if _, err := fs.Stat(repository, m[1]); err != nil {
			t.Errorf("docs/ARCHITECTURE.md: %v", err)
		}
	}
	paths := steps.FindAllStringSubmatch(string(text), -1)
	if len(paths) != 2 {
		t.Errorf("docs/ARCHITECTURE.md: %d paths through the code, want 2", len(paths))
	}
	for _, p := range paths {
		for line := range strings.Lines(p[1]) {
			if line != "\n" && !strings.HasPrefix(line, " ") {
				checkStep(t, line)
			}
		}
	}
}

// checkStep checks that the function of a step exists.
func checkStep(t *testing.T, line string) {
	m := step.FindStringSubmatch(line)
	if m == nil {
		t.Errorf("docs/ARCHITECTURE.md: %q names no function", line)
		return
	}
	if _, err := fs.Stat(repository, m[1]); err != nil {
		t.Errorf("docs/ARCHITECTURE.md: %v", err)
	} else if !declares(parse(t, m[1]), m[2], m[3]) {
		t.Errorf("docs/ARCHITECTURE.md: %s does not declare %s", m[1], strings.TrimPrefix(m[2]+"."+m[3], "."))
	}
}

// declares reports whether f declares a function, or a method of the type called receiver.
func declares(f *file, receiver, name string) bool {
	for _, d := range f.syntax.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Name.Name == name && receiverOf(d) == receiver {
			return true
		}
	}
	return false
}

// receiverOf returns the name of the receiver's type, without a pointer, or "" for a function.
func receiverOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	x := d.Recv.List[0].Type
	if p, ok := x.(*ast.StarExpr); ok {
		x = p.X
	}
	id, _ := x.(*ast.Ident)
	if id == nil {
		return ""
	}
	return id.Name
}
