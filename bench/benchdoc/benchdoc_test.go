package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
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

// TestDocument: docs/benchmarks.md has a block with a table for each part, and links only to existing plots.
func TestDocument(t *testing.T) {
	const docs = "../../docs"
	doc := string(read(t, docs+"/benchmarks.md"))
	found, err := blocks(doc)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(found))
	for i, b := range found {
		names[i] = b.name
		if !strings.Contains(doc[b.begin:b.end], "|---|") {
			t.Errorf("block %s has no table", b.name)
		}
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(partNames())), slices.Sorted(slices.Values(names))); diff != "" {
		t.Errorf("blocks do not match parts:\n%s", diff)
	}
	for i := range parts {
		if file := parts[i].plotFile(); strings.Contains(doc, file) {
			read(t, filepath.Join(docs, file))
		}
	}
}

// TestBlocks: the recorded output of each benchmark becomes a block in which every figure with a goal is known.
func TestBlocks(t *testing.T) {
	for i := range parts {
		p := &parts[i]
		b, err := p.render(read(t, "testdata/"+p.name+".json"))
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		at := &conditions{command: p.command(), begin: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), cpu: "A Processor", cores: 2, load: "0.25"}
		golden(t, p.name+".md", []byte(p.block(at, b)))
		if strings.Contains(b.text, "| "+units.Unknown+" | ≥") || strings.Contains(b.text, "| "+units.Unknown+" | ≤") {
			t.Errorf("%s: a figure with a goal is missing:\n%s", p.name, b.text)
		}
		if (p.plot != "") != (b.plot != nil) {
			t.Errorf("%s: has plot %t, has alternative text %t; want both or neither", p.name, b.plot != nil, p.plot != "")
		}
		if b.plot != nil {
			golden(t, p.name+".svg", b.plot)
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

// TestNoFigures: output without any of the figures is an error, not a block of dashes.
func TestNoFigures(t *testing.T) {
	for i := range parts {
		for _, out := range []string{"", "{}", `{"results": [{"name": "else", "x": 1}]}`, "nonsense"} {
			if b, err := parts[i].render([]byte(out)); err == nil {
				t.Errorf("%s: output %q gives block %s, want an error", parts[i].name, out, b.text)
			}
		}
	}
}

func TestReplace(t *testing.T) {
	const doc = "# A\n<!-- bench:a -->\nold\n<!-- end -->\ntext\n<!-- bench:b -->\n<!-- end -->\nmore\n"
	got, err := replace(doc, "a", "new\nlines\n\n")
	if want := strings.Replace(doc, "old", "new\nlines", 1); err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if got, err = replace(got, "b", "x"); err != nil || !strings.Contains(got, "<!-- bench:b -->\nx\n<!-- end -->\nmore\n") {
		t.Errorf("%q, %v, want block b replaced", got, err)
	}
	for _, bad := range []struct{ doc, want string }{
		{"text\n", `no block "a"`},
		{"<!-- bench:a -->\n", "does not end"},
		{"<!-- end -->\n", "did not begin"},
		{"<!-- bench:a -->\n<!-- bench:b -->\n<!-- end -->\n", `inside of "a"`},
		{"<!-- bench:a -->\n<!-- end -->\n<!-- bench:a -->\n<!-- end -->\n", "line 3"},
		{"<!-- bench:a\n<!-- end -->\n", "line 1"},
	} {
		if got, err := replace(bad.doc, "a", "x"); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%q: %q, %v, want %s", bad.doc, got, err, bad.want)
		}
	}
}

// TestRun: if the benchmark of one part fails, that part keeps its block and the others are updated.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	doc, program := filepath.Join(dir, "doc.md"), filepath.Join(dir, "sibyl")
	result, err := filepath.Abs("testdata/group.json")
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n[ \"$1 $2 $3\" = 'group -o json' ] && exec cat '" + result + "'\necho '{'\nexit 3\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	if err := os.WriteFile(doc, []byte("by hand\n<!-- bench:group -->\nold group\n<!-- end -->\n<!-- bench:path -->\nold path\n<!-- end -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	err = run(t.Context(), []string{"-sibylbench", program, "-doc", doc, "group", "path"}, &progress)
	if err == nil || !strings.Contains(err.Error(), "block path is unchanged") || strings.Contains(err.Error(), "group") {
		t.Errorf("error %v, want one about path only", err)
	}
	got := string(read(t, doc))
	for _, want := range []string{"by hand\n", "`sibylbench group`, ", "| ranking 10 000 problems | ", "\nold path\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the document lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "old group") {
		t.Errorf("block group was not replaced:\n%s", got)
	}
	if err := run(t.Context(), []string{"nonsense"}, &progress); err == nil || !strings.Contains(err.Error(), "the parts are path, decode") {
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

// TestMet covers met and missed goals, and no goal.
func TestMet(t *testing.T) {
	for _, c := range []struct {
		g    goal
		x    float64
		want string
	}{
		{atLeast(2), 2, "yes"}, {atLeast(2), 1.9, "**no**"}, {atMost(2), 2, "yes"}, {atMost(2), 2.1, "**no**"}, {goal{}, 5, units.Unknown},
	} {
		if got := c.g.met(c.x); got != c.want {
			t.Errorf("%v of %v: %s, want %s", c.x, c.g, got, c.want)
		}
	}
}
