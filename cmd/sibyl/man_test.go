package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

//go:generate go test . -run ^TestManPages$ -rewrite

// manPages is the directory of the man pages.
const manPages = "../../docs/man"

// TestManPages: the man pages are those of the commands. A man page has no date, so that it changes with its command
// only.
func TestManPages(t *testing.T) {
	made := t.TempDir()
	root := (&process{getenv: func(string) string { return "" }}).root()
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	addChoices(root)
	if err := doc.GenManTree(root, &doc.GenManHeader{Source: "Sibyl", Manual: "Sibyl", Date: &time.Time{}}, made); err != nil {
		t.Fatal(err)
	}
	want := make(map[string][]byte)
	for _, name := range pages(t, made) {
		page, err := os.ReadFile(filepath.Join(made, name))
		if err != nil {
			t.Fatal(err)
		}
		want[name] = bytes.ReplaceAll(page, []byte(`"Jan 0001"`), []byte(`""`))
	}
	if *rewrite {
		rewriteManPages(t, want)
	}
	for _, name := range pages(t, manPages) {
		got, err := os.ReadFile(filepath.Join(manPages, name))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want[name]), string(got)); d != "" {
			t.Errorf("%s: make generate rewrites it\n%s", name, d)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s is missing: make generate writes it", name)
	}
}

// addChoices adds the choices of flags to their texts: man pages do not show the type of a flag, which names them.
func addChoices(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if strings.Contains(f.Value.Type(), "|") {
			f.Usage += ": " + strings.ReplaceAll(f.Value.Type(), "|", ", ")
		}
	})
	for _, sub := range c.Commands() {
		addChoices(sub)
	}
}

func rewriteManPages(t *testing.T, all map[string][]byte) {
	t.Helper()
	for _, name := range pages(t, manPages) {
		if err := os.Remove(filepath.Join(manPages, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, page := range all {
		if err := os.WriteFile(filepath.Join(manPages, name), page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// pages returns the names of the man pages in a directory.
func pages(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".1") {
			names = append(names, f.Name())
		}
	}
	return names
}
