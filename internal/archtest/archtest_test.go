package archtest

import (
	"bytes"
	"go/ast"
	"go/build"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEveryFolderHasARule(t *testing.T) {
	for _, f := range goFiles(t) {
		if _, ok := ruleOf(f.folder); !ok {
			t.Errorf("%s: docs/ARCHITECTURE.md has no rule for %s", f.at(f.syntax.Package), f.folder)
		}
	}
}

func TestImports(t *testing.T) {
	for _, f := range goFiles(t) {
		r, _ := ruleOf(f.folder)
		for _, imp := range f.imports {
			if why := violation(f, r, imp.path); why != "" {
				t.Errorf("%s: imports %s: %s", f.at(imp.pos), imp.path, why)
			}
		}
	}
}

// testkit is the folder of packages that support tests and evaluation.
const testkit = "internal/testkit"

// violation returns why f, which has rule r, must not import importPath, or "" if it may.
func violation(f *file, r rule, importPath string) string {
	if f.isTest() {
		return ""
	}
	folder, ours := strings.CutPrefix(importPath, module+"/")
	switch {
	case ours && under(folder, "cmd") && !under(f.folder, "cmd"):
		return "commands are not imported"
	case ours && under(folder, "bench") && !under(f.folder, "bench"):
		return "evaluation is not part of the product"
	case ours && under(folder, testkit) && !under(f.folder, testkit) && !under(f.folder, "bench"):
		return "support of tests is not part of the product"
	case ours && f.folder != folder && !r.allows(folder):
		return f.folder + " may not depend on it"
	case !ours && r.pure && !slices.Contains(pureStd, importPath) && !underAny(importPath, pureModules[r.folder]):
		return "a pure package computes on its arguments only"
	}
	return ""
}

// sorting is the folder of the package that all packages may import, as if it were in the standard library.
const sorting = "internal/sorting"

// allows reports whether packages under r may import a folder of this module.
func (r rule) allows(folder string) bool {
	return r.all || folder == sorting || slices.Contains(r.ours, folder)
}

// TestOrder checks that a package imports only packages above it in the rules.
func TestOrder(t *testing.T) {
	for i, r := range rules() {
		for _, allowed := range r.ours {
			if !slices.ContainsFunc(rules()[:i], func(other rule) bool { return other.folder == allowed }) {
				t.Errorf("%s may import %s, which does not stand above it", r.folder, allowed)
			}
		}
	}
}

// TestNoIdleRules checks that each import allowed by a rule is used, because an unused permission is an oversight.
func TestNoIdleRules(t *testing.T) {
	used := make(map[string]bool) // folder of the rule, space, imported folder
	for _, f := range goFiles(t) {
		r, _ := ruleOf(f.folder)
		for _, imp := range f.imports {
			if folder, ours := strings.CutPrefix(imp.path, module+"/"); ours && !f.isTest() {
				used[r.folder+" "+folder] = true
			}
		}
	}
	for _, r := range rules() {
		for _, allowed := range r.ours {
			if !used[r.folder+" "+allowed] {
				t.Errorf("%s may import %s but does not", r.folder, allowed)
			}
		}
	}
}

// TestPure finds side effects of pure packages that need no import.
func TestPure(t *testing.T) {
	for _, f := range goFiles(t) {
		if r, _ := ruleOf(f.folder); r.pure && !f.isTest() {
			report(t, f, impurities(f))
		}
	}
}

// finding is a violation of a rule.
type finding struct {
	pos     token.Pos
	message string
}

func report(t *testing.T, f *file, found []finding) {
	t.Helper()
	for _, x := range found {
		t.Errorf("%s: %s", f.at(x.pos), x.message)
	}
}

// impurities returns the places in f that do more than compute from arguments.
func impurities(f *file) []finding {
	var found []finding
	add := func(n ast.Node, message string) { found = append(found, finding{n.Pos(), message}) }
	random, globals := f.qualifier("math/rand/v2"), packageVariables(f)
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ChanType:
			add(n, "a channel")
		case *ast.SelectorExpr:
			if name := selected(n, random); name != "" && !slices.Contains(seeded, name) {
				add(n, "rand."+name+" draws from a source without a seed")
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if v := variable(left); v != nil && globals[v.Obj] {
					add(n, "changes the package's variable "+v.Name)
				}
			}
		case *ast.IncDecStmt:
			if v := variable(n.X); v != nil && globals[v.Obj] {
				add(n, "changes the package's variable "+v.Name)
			}
		case *ast.FuncDecl:
			if n.Name.Name == "init" && n.Recv == nil {
				add(n, "an init function")
			}
		}
		return true
	})
	return found
}

// clockUses returns the places where f reads the clock, or starts a goroutine that r doesn't allow.
func clockUses(f *file, r rule) []finding {
	var found []finding
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, finding{n.Pos(), "starts a goroutine"})
		case *ast.CallExpr: // of a sync.WaitGroup or an errgroup.Group
			if to, ok := n.Fun.(*ast.SelectorExpr); ok && to.Sel.Name == "Go" && len(n.Args) == 1 && !r.waits {
				found = append(found, finding{n.Pos(), "starts a goroutine"})
			}
		case *ast.SelectorExpr:
			if name := selected(n, f.qualifier("time")); slices.Contains(clock, name) {
				found = append(found, finding{n.Pos(), "time." + name + ": take the time as an argument"})
			}
		}
		return true
	})
	return found
}

// selected returns the name that e selects from the package named qualifier, or "" if it selects from something else.
func selected(e *ast.SelectorExpr, qualifier string) string {
	if x, ok := e.X.(*ast.Ident); ok && qualifier != "" && x.Name == qualifier && x.Obj == nil {
		return e.Sel.Name
	}
	return ""
}

// variable returns the variable that the assignable expression e changes, or nil if it has no name.
func variable(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.Ident:
			return x
		default:
			return nil
		}
	}
}

// packageVariables returns the variables that f declares outside functions.
func packageVariables(f *file) map[*ast.Object]bool {
	globals := make(map[*ast.Object]bool)
	for _, d := range f.syntax.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, s := range g.Specs {
			if v, ok := s.(*ast.ValueSpec); ok {
				for _, name := range v.Names {
					globals[name.Obj] = true
				}
			}
		}
	}
	return globals
}

// TestClock finds packages that read the clock or start goroutines without permission.
func TestClock(t *testing.T) {
	for _, f := range goFiles(t) {
		if r, _ := ruleOf(f.folder); !r.clock && !f.isTest() {
			report(t, f, clockUses(f, r))
		}
	}
}

func TestNames(t *testing.T) {
	std := standardNames(t)
	for _, f := range goFiles(t) {
		name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		switch {
		case name == "main" || stdNames[name] != "":
		case slices.Contains(vagueNames, name):
			t.Errorf("%s: package %s: the name does not describe its purpose", f.at(f.syntax.Package), name)
		case std[name] != "":
			t.Errorf("%s: package %s: the standard library has %s", f.at(f.syntax.Package), name, std[name])
		}
	}
}

func TestFolders(t *testing.T) {
	walk(t, func(name string) {
		for part := range strings.SplitSeq(path.Dir(name), "/") {
			if slices.Contains(vagueNames, part) {
				t.Errorf("%s: the folder name %s does not describe its purpose", name, part)
			}
		}
	})
}

// standardNames returns paths of packages of the standard library by their last elements.
func standardNames(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join(build.Default.GOROOT, "src")
	names := make(map[string]string)
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil || !d.IsDir() || name == ".":
			return err
		case base == "internal" || base == "vendor" || base == "cmd" || base == "testdata":
			return fs.SkipDir
		case names[base] == "":
			names[base] = name
		}
		return nil
	})
	if err != nil {
		t.Skipf("no standard library to compare with: %v", err)
	}
	return names
}

func TestText(t *testing.T) {
	walk(t, func(name string) {
		text, err := fs.ReadFile(repository, name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text, 0) >= 0 { // not text
			return
		}
		for _, word := range forbidden {
			if before, _, found := bytes.Cut(text, []byte(word)); found {
				t.Errorf("%s:%d: mentions %q", name, 1+bytes.Count(before, []byte("\n")), word)
			}
		}
	})
}

// TestDependenciesAreJustified checks that docs/ARCHITECTURE.md gives a reason for every imported module.
func TestDependenciesAreJustified(t *testing.T) {
	doc, err := fs.ReadFile(repository, "docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	named := quoted(string(doc))
	for _, f := range goFiles(t) {
		for _, imp := range f.imports {
			host, _, _ := strings.Cut(imp.path, "/")
			if strings.Contains(host, ".") && !under(imp.path, module) && !underAny(imp.path, named) {
				t.Errorf("%s: docs/ARCHITECTURE.md gives no reason for %s", f.at(imp.pos), imp.path)
			}
		}
	}
}
