package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/internal/units"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(read(t, path)), string(got)); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestDocument: each part has a file of results, docs/benchmarks.md links to each file, and it stays short, since
// tables belong in the results.
func TestDocument(t *testing.T) {
	const document, results, limit = "../../docs/benchmarks.md", "../../bench/results", 2000
	if n := len(strings.Fields(string(read(t, document)))); n > limit {
		t.Errorf("%s has %d words, want at most %d", document, n, limit)
	}
	linked := links(t, document)
	files, err := filepath.Glob(results + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if links(t, file); !linked[file] {
			t.Errorf("%s does not link %s", document, file)
		}
	}
	for i := range parts {
		if file := filepath.Join(results, parts[i].file()); !strings.Contains(string(read(t, file)), "|---|") {
			t.Errorf("%s has no table", file)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)[)#]`)

// links returns the files that document links, and reports an error for each one that does not exist.
func links(t *testing.T, document string) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	for _, m := range link.FindAllStringSubmatch(string(read(t, document)), -1) {
		file := filepath.Join(filepath.Dir(document), m[1])
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s: %v", document, err)
		}
		found[file] = true
	}
	return found
}

// TestRender: the recorded output of each benchmark becomes a document in which every figure with a goal is known.
func TestRender(t *testing.T) {
	for i := range parts {
		p := &parts[i]
		b, err := p.render(read(t, "testdata/"+p.name+".json"))
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		at := &conditions{
			command: p.command(),
			begin:   time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC),
			cpu:     "A Processor",
			cores:   2,
			load:    "0.25",
		}
		golden(t, p.file(), p.document(at, b))
		if strings.Contains(b.text, "| "+units.Unknown+" | ≥") || strings.Contains(b.text, "| "+units.Unknown+" | ≤") {
			t.Errorf("%s: a figure with a goal is missing:\n%s", p.name, b.text)
		}
		if (p.plot != "") != (b.plot != nil) {
			t.Errorf("%s: has plot %t, has alternative text %t; want both or neither",
				p.name, b.plot != nil, p.plot != "")
		}
		if b.plot != nil {
			golden(t, p.plotFile(), b.plot)
			wellFormed(t, b.plot)
		}
	}
}

func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoFigures: if output contains no figure at all, that is an error, not a table of dashes.
func TestNoFigures(t *testing.T) {
	for i := range parts {
		for _, out := range []string{"", "{}", `{"results": [{"name": "else", "x": 1}]}`, "nonsense"} {
			if b, err := parts[i].render([]byte(out)); err == nil {
				t.Errorf("%s: output %q gives %s, want an error", parts[i].name, out, b.text)
			}
		}
	}
}

// TestRun: if the benchmark of one part fails, that part keeps its file and the others are updated.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	group := filepath.Join(dir, "group.md")
	path, program := filepath.Join(dir, "path.md"), filepath.Join(dir, "sibylbench")
	result, err := filepath.Abs("testdata/group.json")
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n[ \"$1 $2 $3\" = 'group -o json' ] && exec cat '" + result + "'\necho '{'\nexit 3\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	for _, file := range []string{group, path} {
		if err := os.WriteFile(file, []byte("old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var progress bytes.Buffer
	err = run(t.Context(), []string{"-sibylbench", program, "-results", dir, "group", "path"}, &progress)
	if err == nil || !strings.Contains(err.Error(), "path.md is unchanged") || strings.Contains(err.Error(), "group") {
		t.Errorf("error %v, want one about path only", err)
	}
	got := string(read(t, group))
	for _, want := range []string{"# group\n`sibylbench group`, ", "| judging all of these groups | "} {
		if !strings.Contains(got, want) {
			t.Errorf("group.md lacks %q:\n%s", want, got)
		}
	}
	if got := string(read(t, path)); got != "old\n" {
		t.Errorf("path.md was changed:\n%s", got)
	}
	if err := run(t.Context(), []string{"nonsense"}, &progress); err == nil ||
		!strings.Contains(err.Error(), "the parts are path, decode") {
		t.Errorf("error %v, want a list of the parts", err)
	}
}

// TestArguments: the output format is an argument of the benchmark, not of the server that it starts.
func TestArguments(t *testing.T) {
	for i := range parts {
		args := parts[i].arguments()
		server, format := slices.Index(args, "--"), slices.Index(args, "-o")
		if format < 0 || args[format+1] != "json" || server >= 0 && format > server {
			t.Errorf("%s: %q, want -o json before --", parts[i].name, args)
		}
	}
}

// TestMet covers goals that are met or missed, and no goal.
func TestMet(t *testing.T) {
	for _, c := range []struct {
		g    goal
		x    float64
		want string
	}{
		{atLeast(2), 2, "yes"},
		{atLeast(2), 1.9, "**no**"},
		{atMost(2), 2, "yes"},
		{atMost(2), 2.1, "**no**"},
		{goal{}, 5, units.Unknown},
	} {
		if got := c.g.met(c.x); got != c.want {
			t.Errorf("%v of %v: %s, want %s", c.x, c.g, got, c.want)
		}
	}
}
