package main

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/jvm"
)

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		c    component
		want string // in the error; empty: none
	}{
		{component{license: "MIT", text: "text"}, ""},
		{component{license: "MIT, Apache-2.0", text: "text"}, ""},
		{component{license: "Unlicense"}, ""},
		{component{license: "MIT"}, "text of its license is missing"},
		{component{license: "Unknown", text: "text"}, `"Unknown" is not known`},
		{component{license: "MIT, AGPL-3.0", text: "text"}, `"AGPL-3.0" is not known`},
		{component{license: "", text: "text"}, `"" is not known`},
	} {
		err := check([]part{{components: []component{test.c}}})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.c, err, test.want)
		}
	}
}

// TestWrite: equal texts appear once, below the names of all that they belong to.
func TestWrite(t *testing.T) {
	got := write([]part{{"Parts", "source", []component{
		{name: "b", version: "2", license: "MIT", text: "the text\r\n"},
		{name: "a", version: "1", license: "MIT", text: "the text\n", notice: "the notice"},
	}}})
	want := "Parts. The source: source\n  a 1: MIT\n  b 2: MIT\n\n" +
		rule + "a 1\nb 2\n\nthe text\n\n" + rule + "a 1\n\nthe notice\n"
	if !strings.HasSuffix(got, want) {
		t.Errorf("%q, want the end %q", got, want)
	}
}

// TestGoComponents: a package with two licenses in one file is one component, with the notices next to the file.
func TestGoComponents(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"LICENSE", "NOTICE.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "LICENSE")
	report := filepath.Join(dir, "report")
	lines := "x/y\tv1\t" + path + "\tMIT\nx/y\tv1\t" + path + "\tBSD-3-Clause\nx/z\tv1\tUnknown\tUnknown\n\n"
	if err := os.WriteFile(report, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := goComponents(report)
	if err != nil || len(got) != 2 || got[0].license != "MIT, BSD-3-Clause" || got[0].text != "LICENSE" ||
		got[0].notice != "NOTICE.txt\n" || got[1].license != "Unknown" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestJar: the libraries in the jar have versions; a class of unknown origin is an error.
func TestJar(t *testing.T) {
	const pom = "../../agents/jvm/pom.xml"
	got, err := jarComponents(jvm.Jar(), pom)
	if err != nil || len(got) != len(libraries) || got[0].version == "" {
		t.Errorf("%+v, %v", got, err)
	}
	var jar bytes.Buffer
	w := zip.NewWriter(&jar)
	if _, err := w.Create("agent/org/other/Class.class"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := jarComponents(jar.Bytes(), pom); err == nil {
		t.Errorf("%+v, want an error", got)
	}
}
