package archtest

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// These tests are a thermometer of the language, not its aim: docs/CONTRIBUTING.md says how to write.

const (
	whatPerWord   = 2. / 1000 // most occurrences of "what" for each word, in the comments of a folder and in a document
	fewWords      = 1000      // below, a share says little: two occurrences are fine
	commentColumn = 120       // most columns of a comment line
)

var (
	what = regexp.MustCompile(`(?i)\bwhat\b`)

	// riddle matches the first sentence of a doc comment that names no noun: "X is what …", "X says how …".
	riddle = regexp.MustCompile(`^\w+(, \w+)* (is|are|was|were|has|have|does|do|says?|tells?|holds?|knows?) (what|whatever|how|who|whoever|whom|whose|which|where|when|why|whether|that which)\b`)

	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`|https?://\\S+")
)

// count is the number of words of a text, and of those that the thermometer counts.
type count struct{ words, what int }

func (c *count) add(text string) {
	text = code.ReplaceAllString(text, " ")
	c.words += len(strings.Fields(text))
	c.what += len(what.FindAllString(text, -1))
}

// hot reports whether there are too many.
func (c *count) hot() bool { return float64(c.what) > max(fewWords, float64(c.words))*whatPerWord }

func (c *count) String() string {
	return fmt.Sprintf("%d times \"what\" in %d words, %.1f of 1 000", c.what, c.words, 1000*float64(c.what)/float64(max(c.words, 1)))
}

// unplain lists the folders whose comments still await their rewriting. A folder leaves the list once it is plain, and none is added.
var unplain = []string{
	"analysis", "analysis/baselinediff", "analysis/critpath", "analysis/explain", "analysis/stats", "api",
	"api/contract", "bench/benchdoc", "bench/benchreport", "bench/demo", "bench/demo/shop",
	"bench/fixtures/devdata", "bench/fixtures/gentestdata", "bench/fixtures/tracegen",
	"bench/fixtures/transfergen", "bench/oracle", "bench/requests", "bench/sim", "bench/throughput",
	"bench/tracetest", "client", "cmd/internal/cli", "cmd/sibyl", "cmd/sibylbench", "config", "control",
	"control/opamp", "control/sampling", "describe", "engine", "engine/live", "ingest/otlp",
	"ingest/otlp/receiver", "internal/archtest", "internal/connlimit", "internal/pebbledb", "notify",
	"notify/export", "report", "report/waterfall", "search", "server", "web/pack",
}

// The comments of each folder are plain: they use "what" rarely, no doc comment is a riddle, and no line is wider than an editor.
func TestComments(t *testing.T) {
	found, counts := make(map[string][]string), make(map[string]*count)
	for _, f := range goFiles(t) {
		if isGenerated(f) {
			continue
		}
		c := counts[f.folder]
		if c == nil {
			c = &count{}
			counts[f.folder] = c
		}
		for _, group := range f.syntax.Comments {
			text := group.Text()
			c.add(text)
			if !f.isTest() && riddle.MatchString(text) {
				found[f.folder] = append(found[f.folder], fmt.Sprintf("%s: %q: name the thing", f.at(group.Pos()), firstLine(text)))
			}
		}
		found[f.folder] = append(found[f.folder], wide(t, f)...)
	}
	for folder, c := range counts {
		if c.hot() {
			found[folder] = append(found[folder], fmt.Sprintf("%s: %s", folder, c))
		}
		switch pending := slices.Contains(unplain, folder); {
		case pending && len(found[folder]) == 0:
			t.Errorf("%s is plain: take it off the list", folder)
		case !pending:
			for _, x := range found[folder] {
				t.Error(x)
			}
		}
	}
}

// wide returns the lines of f with comments that are wider than an editor.
func wide(t *testing.T, f *file) (found []string) {
	src, err := fs.ReadFile(repository, path.Join(f.folder, f.name))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(src), "\n")
	for _, group := range f.syntax.Comments {
		for _, comment := range group.List {
			if strings.HasPrefix(comment.Text, "//go:") || strings.Contains(comment.Text, "://") || strings.Contains(comment.Text, "//nolint") {
				continue
			}
			line := lines[f.fset.Position(comment.Pos()).Line-1]
			if n := columns(line); strings.HasPrefix(strings.TrimSpace(line), "//") && n > commentColumn {
				found = append(found, fmt.Sprintf("%s: %d columns, want at most %d", f.at(comment.Pos()), n, commentColumn))
			}
		}
	}
	return found
}

// The documents are plain.
func TestDocuments(t *testing.T) {
	walk(t, func(name string) {
		if path.Ext(name) != ".md" || strings.Contains(name, "testdata/") {
			return
		}
		text, err := fs.ReadFile(repository, name)
		if err != nil {
			t.Fatal(err)
		}
		var c count
		c.add(string(text))
		if c.hot() {
			t.Errorf("%s: %s", name, &c)
		}
	})
}

// The thermometer finds the constructions that it is there to find.
func TestThermometer(t *testing.T) {
	for text, want := range map[string]bool{
		"Past is what is kept of what was.":               true,
		"Options say how a Core works.":                   true,
		"errLeft says that the other end left.":           false,
		"History reads stored decisions and exemplars.":   false,
		"Save writes the checkpoint.":                     false,
		"Counts holds the counters that started at zero.": false,
	} {
		if riddle.MatchString(text) != want {
			t.Errorf("%q: %t, want %t", text, !want, want)
		}
	}
	var c count
	c.add("What is this? `what` and somewhat what\n```\nwhat\n```\n")
	if c.what != 2 {
		t.Errorf("%d times, want 2", c.what)
	}
}

// isGenerated reports whether a program wrote the file.
func isGenerated(f *file) bool {
	return len(f.syntax.Comments) > 0 && strings.Contains(f.syntax.Comments[0].Text(), "DO NOT EDIT")
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// columns returns the width of a line, with tabs of four columns.
func columns(line string) int {
	n := 0
	for len(line) > 0 {
		r, size := utf8.DecodeRuneInString(line)
		if r == '\t' {
			n += 4 - n%4
		} else {
			n++
		}
		line = line[size:]
	}
	return n
}
