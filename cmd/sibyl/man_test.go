package main

import (
	"bytes"
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// manDir is a flag of a test, not of the product, so that the packages that write man pages aren't linked into the
// program.
var manDir = flag.String("man", "", "directory in which TestManPages leaves the man pages: make packages")

// TestManPages writes the man page of each command, without a date, so that equal commands have equal pages.
func TestManPages(t *testing.T) {
	dir := cmp.Or(*manDir, t.TempDir())
	root := (&process{getenv: func(string) string { return "" }}).root()
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	addChoices(root)
	err := doc.GenManTree(root, &doc.GenManHeader{Source: "Sibyl", Manual: "Sibyl", Date: &time.Time{}}, dir)
	if err != nil {
		t.Fatal(err)
	}
	undate(t, dir, root)
}

// undate removes the date from the pages of a command and its subcommands.
func undate(t *testing.T, dir string, c *cobra.Command) {
	t.Helper()
	path := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	undated := bytes.Replace(page, []byte(`"Jan 0001"`), []byte(`""`), 1)
	if bytes.Equal(page, undated) {
		t.Errorf("%s has no date to remove", path)
	}
	if err := os.WriteFile(path, undated, 0o644); err != nil { //nolint:gosec // everybody may read it
		t.Fatal(err)
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			undate(t, dir, sub)
		}
	}
}

// addChoices adds the choices of flags to their descriptions, because man pages omit the type of a flag, which lists
// them.
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
