package archtest

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// These tests measure the language of comments. docs/CONTRIBUTING.md contains the rules for writing.

const (
	whatPerWord = 2. / 1000 // maximum occurrences of `what` per word, in the comments of a folder and in a document
	fewWords    = 1000      // with fewer words, two occurrences are allowed
)

var (
	what = regexp.MustCompile(`(?i)\bwhat\b`)

	// riddle matches the first sentence of a doc comment whose subject or object isn't a noun: "X is what …", "X says
	// how …".
	riddle = regexp.MustCompile(`^\w+(, \w+)* (is|are|was|were|has|have|does|do|says?|tells?|holds?|knows?) ` +
		`(what|whatever|how|who|whoever|whom|whose|which|where|when|why|whether|that which)\b`)

	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`|https?://\\S+")
)

// count counts the words of a text, and the occurrences of `what`.
type count struct{ words, what int }

func (c *count) add(text string) {
	text = code.ReplaceAllString(text, " ")
	c.words += len(strings.Fields(text))
	c.what += len(what.FindAllString(text, -1))
}

// hot reports whether `what` occurs too often.
func (c *count) hot() bool { return float64(c.what) > max(fewWords, float64(c.words))*whatPerWord }

func (c *count) String() string {
	rate := 1000 * float64(c.what) / float64(max(c.words, 1))
	return fmt.Sprintf("%d times \"what\" in %d words, %.1f of 1 000", c.what, c.words, rate)
}

// stiff lists the constructions that stand for a noun, or put it off, with the maximum occurrences per 1 000 words of
// all comments. Well-kept projects are below: comments in Go's library, Pebble and Jaeger have hardly any.
var stiff = []struct {
	name    string
	pattern *regexp.Regexp
	most    float64
}{
	{"that of, those of", regexp.MustCompile(`(?i)\b(that|those) of\b`), 0.4},
	{"none", regexp.MustCompile(`(?i)\bnone\b`), 0.6},
	{"of which, in which", regexp.MustCompile(`(?i)\b(of|in|for|at|to|from|with|by|on|after|before) which\b`), 0.8},
	{"a sentence begins with a preposition", regexp.MustCompile(
		`(?:^|[.:!?]\s+|\n\n)(In|At|For|With|From|Of|On|By|To|After|Before|Between|Within|Without|Under|Over|Until|` +
			`Since|During|Besides?)\s`), 2.5},
}

// unplain lists the folders whose comments are still to be rewritten. Remove a folder once it passes. Don't add any.
var unplain = []string{}

// Comments use `what` rarely, and no doc comment is a riddle.
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
				x := fmt.Sprintf("%s: %q: name the thing", f.at(group.Pos()), firstLine(text))
				found[f.folder] = append(found[f.folder], x)
			}
		}
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

// Comments name things, and name them first.
func TestStiffComments(t *testing.T) {
	words, found := 0, make([]int, len(stiff))
	for _, f := range goFiles(t) {
		if isGenerated(f) {
			continue
		}
		for _, group := range f.syntax.Comments {
			text := group.Text()
			words += len(strings.Fields(text))
			for i := range stiff {
				found[i] += len(stiff[i].pattern.FindAllString(text, -1))
			}
		}
	}
	for i, x := range stiff {
		if rate := 1000 * float64(found[i]) / float64(words); rate > x.most {
			t.Errorf("%s: %.2f times per 1 000 words of comments, want at most %g", x.name, rate, x.most)
		}
	}
}

// Documents use `what` rarely.
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

// The patterns match the intended constructions only.
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

// isGenerated reports whether the file is generated.
func isGenerated(f *file) bool {
	return len(f.syntax.Comments) > 0 && strings.Contains(f.syntax.Comments[0].Text(), "DO NOT EDIT")
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
