package config

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// hostile returns files that expand, nest or repeat far beyond their size.
func hostile() map[string]string {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 9 {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n",
			i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 9), ","))
	}
	var unknown strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&unknown, "key%d: 1\n", i)
	}
	return map[string]string{
		"alias bomb":        bomb.String(),
		"alias to itself":   "keys: &a [*a]",
		"deep lists":        "keys: " + strings.Repeat("[", 100_000),
		"deep sections":     strings.Repeat("{a: ", 100_000),
		"deep and closed":   "keys: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"deep block lists":  strings.Repeat("- ", 400_000),
		"deep block keys":   strings.Repeat("? ", 400_000),
		"too long":          "# " + strings.Repeat("x", maxFile),
		"too many values":   "keys: [" + strings.Repeat("a,", maxNodes) + "a]",
		"too many words":    "keys: " + strings.Repeat("a,", maxWords) + "a",
		"too many elements": "rules: [" + strings.Repeat("{entry: a},", maxSections) + "{entry: a}]",
		"many unknown keys": unknown.String(),
		"many errors":       "rules: [" + strings.Repeat("{x: a},", maxSections) + "]",
		"an empty key":      `"": 1`,
		"a long key":        strings.Repeat("x", 100_000) + ": 1",
		"a long value":      "data-dir: " + strings.Repeat("x", 500_000),
		"escape sequences":  "\"\\e[2J\": 1\ndata-dir: \"\\e[2J\"",
		"no text":           "\x00\xff\xfe",
		"UTF-16":            "\xff\xfee\x00p\x00o\x00c\x00h\x00:\x00 \x001\x00",
	}
}

// loaded reads the text of a file as Load does, and checks the invariants of errors.
func loaded(t *testing.T, text string) (*Effective, Errors) {
	t.Helper()
	l, r := newLayer(), &reader{file: "sibyl.yaml"}
	l.readText(r, []byte(text))
	e := merge(l)
	all := append(r.errors, e.check(r.errors)...)
	for _, err := range all {
		s := err.Error()
		if len(s) > 1000 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("an error has %d bytes, want at most 1000 printable ones: %.2000q", len(s), s)
		}
	}
	return e, all
}

func TestHostileFiles(t *testing.T) {
	for name, text := range hostile() {
		t.Run(name, func(t *testing.T) {
			if _, errs := loaded(t, text); len(errs) == 0 || len(errs) > maxErrors+10 {
				t.Errorf("got %d errors, want 1 to %d", len(errs), maxErrors+10)
			}
		})
	}
}

// A configuration that can be loaded stays the same if it is printed and loaded again.
func FuzzLoad(f *testing.F) {
	for _, text := range hostile() {
		if len(text) < 10_000 {
			f.Add(text)
		}
	}
	var b bytes.Buffer
	e, err := Load(Sources{})
	if err != nil {
		f.Fatal(err)
	}
	if err := e.Print(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.String())
	f.Add("webhooks:\n- {name: a, url: http://b, events: [decision]}\nrules: [{entry: a b, accept: {cov: 1}}]\n" +
		"keys: a,b\notlp.grpc: off\n")
	f.Fuzz(func(t *testing.T, text string) {
		e, errs := loaded(t, text)
		if len(errs) > 0 {
			return
		}
		var b bytes.Buffer
		if err := e.Print(&b); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), hidden) {
			return // hidden secrets can't be loaded again
		}
		again, errs := loaded(t, b.String())
		if len(errs) > 0 {
			t.Fatalf("%v\n%s", errs, b.String())
		}
		if diff := cmp.Diff(e.Config, again.Config); diff != "" {
			t.Fatalf("%s\n%s", diff, b.String())
		}
	})
}
