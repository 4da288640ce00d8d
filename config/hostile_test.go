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
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 9), ","))
	}
	var unknown strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&unknown, "key%d: 1\n", i)
	}
	return map[string]string{
		"alias bomb":         bomb.String(),
		"alias to itself":    "keys: &a [*a]",
		"deep lists":         "keys: " + strings.Repeat("[", 100_000),
		"deep sections":      strings.Repeat("{a: ", 100_000),
		"deep and closed":    "keys: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"deep block lists":   strings.Repeat("- ", 400_000),
		"deep block keys":    strings.Repeat("? ", 400_000),
		"too long":           "# " + strings.Repeat("x", maxFile),
		"too many values":    "keys: [" + strings.Repeat("a,", maxNodes) + "a]",
		"too many words":     "keys: " + strings.Repeat("a,", maxWords) + "a",
		"too many elements":  "rules: [" + strings.Repeat("{entry: a},", maxSections) + "{entry: a}]",
		"many unknown keys":  unknown.String(),
		"many mistakes":      "rules: [" + strings.Repeat("{x: a},", maxSections) + "]",
		"a long key":         strings.Repeat("x", 100_000) + ": 1",
		"a long value":       "data-dir: " + strings.Repeat("x", 500_000),
		"what moves cursors": "\"\\e[2J\": 1\ndata-dir: \"\\e[2J\"",
		"no text":            "\x00\xff\xfe",
		"UTF-16":             "\xff\xfee\x00p\x00o\x00c\x00h\x00:\x00 \x001\x00",
	}
}

// loaded reads the text of a file as Load does, and checks the invariants of errors.
func loaded(t *testing.T, text string) (*Effective, Errors) {
	t.Helper()
	l, r := newLayer(), &reader{file: "sibyl.yaml"}
	l.readText(r, []byte(text))
	e := merge(l)
	mistakes := append(r.errors, e.check(r.errors)...)
	for _, m := range mistakes {
		s := m.Error()
		if len(s) > 1000 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("a mistake of %d bytes, or that is not fit for a terminal: %.2000q", len(s), s)
		}
	}
	return e, mistakes
}

func TestHostileFiles(t *testing.T) {
	for name, text := range hostile() {
		t.Run(name, func(t *testing.T) {
			if _, mistakes := loaded(t, text); len(mistakes) == 0 || len(mistakes) > maxErrors+10 {
				t.Errorf("%d mistakes", len(mistakes))
			}
		})
	}
}

// FuzzLoad reads any text. What is taken must be the same once printed and read again.
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
	f.Add("webhooks:\n- {name: a, url: http://b, events: [decision]}\nrules: [{entry: a b, accept: {cov: 1}}]\nkeys: a,b\notlp.grpc: off\n")
	f.Fuzz(func(t *testing.T, text string) {
		e, mistakes := loaded(t, text)
		if len(mistakes) > 0 {
			return
		}
		var b bytes.Buffer
		if err := e.Print(&b); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), hidden) {
			return // what is hidden cannot be read again
		}
		again, mistakes := loaded(t, b.String())
		if len(mistakes) > 0 {
			t.Fatalf("%v\n%s", mistakes, b.String())
		}
		if diff := cmp.Diff(e.Config, again.Config); diff != "" {
			t.Fatalf("%s\n%s", diff, b.String())
		}
	})
}
