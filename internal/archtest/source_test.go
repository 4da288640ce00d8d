package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// repository is the root of the repository.
var repository = os.DirFS(filepath.Join("..", ".."))

// file is one Go file of the repository.
type file struct {
	folder  string // relative to the root, with slashes
	name    string
	fset    *token.FileSet
	syntax  *ast.File
	imports []imported
}

// imported is one import declaration.
type imported struct {
	path, name string // name of the package in the file
	pos        token.Pos
}

// at returns the file and line of pos.
func (f *file) at(pos token.Pos) string {
	return path.Join(f.folder, f.name) + ":" + strconv.Itoa(f.fset.Position(pos).Line)
}

// isTest reports whether the file is a test file.
func (f *file) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

// qualifier returns the name that the file uses for the package with the given path, or "" if it doesn't import it.
func (f *file) qualifier(importPath string) string {
	for _, imp := range f.imports {
		if imp.path == importPath {
			return imp.name
		}
	}
	return ""
}

var parsed []*file

// goFiles returns all Go files of the repository, in the order of their paths. It parses them once for all tests.
func goFiles(t *testing.T) []*file {
	t.Helper()
	if parsed != nil {
		return parsed
	}
	walk(t, func(name string) {
		if strings.HasSuffix(name, ".go") {
			parsed = append(parsed, parse(t, name))
		}
	})
	if len(parsed) == 0 {
		t.Fatal("found no Go file")
	}
	return parsed
}

var notOurs = []string{".git", "bin", "agents/jvm/target", "agents/android/target"}

// walk calls visit for every file of the repository, except files of git and of builds.
func walk(t *testing.T, visit func(name string)) {
	t.Helper()
	err := fs.WalkDir(repository, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(notOurs, name) || d.Name() == "node_modules"):
			return fs.SkipDir
		case !d.IsDir() && name != ".git": // a file in a worktree
			visit(name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func parse(t *testing.T, name string) *file {
	t.Helper()
	src, err := fs.ReadFile(repository, name)
	if err != nil {
		t.Fatal(err)
	}
	return parseSource(t, name, src)
}

func parseSource(t *testing.T, name string, src []byte) *file {
	t.Helper()
	var err error
	f := &file{folder: path.Dir(name), name: path.Base(name), fset: token.NewFileSet()}
	if f.syntax, err = parser.ParseFile(f.fset, name, src, parser.ParseComments); err != nil {
		t.Fatal(err)
	}
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		imp := imported{path: p, name: packageName(p), pos: spec.Pos()}
		if spec.Name != nil {
			imp.name = spec.Name.Name
		}
		f.imports = append(f.imports, imp)
	}
	return f
}

// packageName guesses the name of a package from its path: the last element that isn't a version.
func packageName(importPath string) string {
	base := path.Base(importPath)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		return path.Base(path.Dir(importPath))
	}
	return base
}

// ruleOf returns the rule of the given folder or of the closest folder above it with a rule, and whether there is one.
func ruleOf(folder string) (r rule, ok bool) {
	for _, candidate := range rules() {
		if under(folder, candidate.folder) && (!ok || len(candidate.folder) > len(r.folder)) {
			r, ok = candidate, true
		}
	}
	return r, ok
}

// under reports whether folder is root or lies below it.
func under(folder, root string) bool {
	return folder == root || strings.HasPrefix(folder, root+"/")
}

// underAny reports whether folder is one of roots or lies below one.
func underAny(folder string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return under(folder, root) })
}
