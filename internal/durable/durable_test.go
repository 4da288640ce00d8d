package durable

import (
	"os"
	"path/filepath"
	"testing"
)

// Replace creates and replaces files for their owner only. If it fails, it leaves the old file and nothing else.
func TestReplace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "notes.json")
	for _, text := range []string{"old", "new"} {
		if err := Replace(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		info, statErr := os.Stat(file)
		if err != nil || statErr != nil || string(got) != text || info.Mode().Perm() != 0o600 {
			t.Errorf("the file is %q with mode %v; %v, %v", got, info.Mode(), err, statErr)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "taken"), nil); err == nil {
		t.Error("a directory was replaced")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v, want the file and the directory", entries, err)
	}
	if err := MkdirAll(file); err == nil {
		t.Error("a file counts as a directory")
	}
}
