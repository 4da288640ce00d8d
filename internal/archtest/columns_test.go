package archtest

import (
	"go/ast"
	"go/token"
	"io/fs"
	"path"
	"strings"
	"testing"
)

const mostColumns = 120

// Lines end at mostColumns.
func TestColumns(t *testing.T) {
	for _, f := range goFiles(t) {
		if isGenerated(f) {
			continue
		}
		src, err := fs.ReadFile(repository, path.Join(f.folder, f.name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(src), "\n")
		exempt := unbreakable(f, lines)
		for i, line := range lines {
			if n := columns(line); n > mostColumns && !exempt[i+1] {
				t.Errorf("%s/%s:%d: %d columns, want at most %d", f.folder, f.name, i+1, n, mostColumns)
			}
		}
	}
}

// unbreakable returns the numbers of the lines that may be wider: strings of several lines, strings alone on their
// line, tags of fields, comments with a URL, and directives.
func unbreakable(f *file, lines []string) map[int]bool {
	exempt := make(map[int]bool)
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			at := f.fset.Position(c.Pos())
			directive := strings.HasPrefix(c.Text, "//go:") || strings.HasPrefix(c.Text, "//nolint")
			if isBlank(lines[at.Line-1][:at.Column-1]) && (directive || strings.Contains(c.Text, "://")) {
				exempt[at.Line] = true
			}
		}
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if n.Tag != nil {
				exempt[f.fset.Position(n.Tag.Pos()).Line] = true
			}
		case *ast.BasicLit:
			from, to := f.fset.Position(n.Pos()), f.fset.Position(n.End())
			before, after := lines[from.Line-1][:from.Column-1], lines[to.Line-1][to.Column-1:]
			alone := isBlank(before) && isBlank(strings.Trim(after, "+,)}"))
			for line := from.Line; n.Kind == token.STRING && (alone || from.Line < to.Line) && line <= to.Line; line++ {
				exempt[line] = true
			}
		}
		return true
	})
	return exempt
}

func isBlank(text string) bool { return strings.TrimSpace(text) == "" }

// columns returns the width of a line, with a tab width of four.
func columns(line string) int {
	n := 0
	for _, r := range line {
		if n++; r == '\t' {
			n += 3 - (n-1)%4
		}
	}
	return n
}
