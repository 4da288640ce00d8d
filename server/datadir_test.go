package server

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
)

// begin opens dir as the data directory of a service, and returns the service's log and the error.
func begin(t *testing.T, dir string) (log string, err error) {
	t.Helper()
	e, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	c := e.Config
	c.DataDir, c.OTLP.GRPC, c.OTLP.HTTP, c.HTTP = dir, "", "", "127.0.0.1:0"
	var text strings.Builder
	s, err := New(&c, Build{}, slog.New(slog.NewTextHandler(&text, nil)), nil)
	if err == nil {
		err = s.Close()
	}
	return text.String(), err
}

// The error for an unusable data directory says what happened and what to do, and following the advice helps. No name
// in the directory vanishes.
func TestUnusableData(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(dir string) error
		want   []string
		aside  string // name that the error advises to move away, if any
	}{
		{
			"a manifest of the store is cut", cut("store", "MANIFEST-*"),
			[]string{"it is damaged", "restore a backup", "store.aside1", "relearns"},
			"store",
		},
		{
			"a manifest of the journal is missing", remove("journal", "MANIFEST-*"),
			[]string{"it is damaged", "journal.aside1", "since its last checkpoint"},
			"journal",
		},
		{"the store lacks markers", remove("store", "marker.*"), []string{"it is damaged", "store.aside1"}, "store"},
		{"another database in place of the store", swap, []string{"another program wrote it", "--data-dir"}, "store"},
		{"a later format", later, []string{"a newer version of sibyl wrote it", "use that version"}, "store"},
		{"a file in place of the store", file("store", "text"), []string{"is a file", "--data-dir"}, "store"},
		{"damaged notes", file("notes.json", "{"), []string{"from a backup", "notes.json.aside"}, "notes.json"},
		{"foreign notes", file("notes.json", `{"a":{}}`), []string{"not the ID", ".aside"}, "notes.json"},
		{"damaged views", file("views.json", "{"), []string{"views.json.aside"}, "views.json"},
		{"damaged silences", file("silences.json", "{"), []string{"silences.json.aside"}, "silences.json"},
		{"damaged comments", file("comments.json", "{"), []string{"comments.json.aside"}, "comments.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if log, err := begin(t, dir); err != nil || log != "" {
				t.Fatalf("new directory: %v, log %q", err, log)
			}
			if err := c.change(dir); err != nil {
				t.Fatal(err)
			}
			before := names(t, dir)
			_, err := begin(t, dir)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
			if after := names(t, dir); after != before {
				t.Errorf("files before %s, after %s", before, after)
			}
			if err := os.Rename(filepath.Join(dir, c.aside), filepath.Join(dir, c.aside+".aside1")); err != nil {
				t.Fatal(err)
			}
			if _, err := begin(t, dir); err != nil {
				t.Errorf("after the advice: %v", err)
			}
		})
	}
}

// A missing log or database is a warning.
func TestMissingData(t *testing.T) {
	dir := t.TempDir()
	if log, err := begin(t, dir); err != nil || log != "" {
		t.Errorf("a new directory: %v, log %q", err, log)
	}
	if err := remove("store", "*.log")(dir); err != nil {
		t.Fatal(err)
	}
	if log, err := begin(t, dir); err != nil || !strings.Contains(log, "the log of a database is missing") {
		t.Errorf("a missing log: %v, log %q", err, log)
	}
	if err := os.RemoveAll(filepath.Join(dir, "store")); err != nil {
		t.Fatal(err)
	}
	log, err := begin(t, dir)
	if err != nil || !strings.Contains(log, "a folder of the data directory is missing") ||
		!strings.Contains(log, "relearns") {
		t.Errorf("a missing store: %v, log %q", err, log)
	}
}

// A directory with files of other programs isn't a data directory unless Sibyl has written to it, even incompletely.
func TestForeignData(t *testing.T) {
	for _, c := range []struct {
		name  string
		paths []string // of files, or of directories if they end in a slash
		want  string   // in the error; empty if there must be no error
	}{
		{"empty", nil, ""},
		{"a new file system", []string{"lost+found/", ".snapshot/"}, ""},
		{"a project", []string{"a.go", "b.go", "c.go", "d.go", "e.go"}, "other files (a.go, b.go, c.go and 2 more)"},
		{"the journal of systemd", []string{"journal/5a1f/system.journal"}, "other files (journal)"},
		{"a database of Sibyl among other files", []string{"a.go", "journal/LOCK"}, ""},
		{"a copy of a database", []string{"a.go", "store/marker.manifest.000001.MANIFEST-000001"}, ""},
		{"a crash while the journal was created", []string{"journal/"}, ""},
		{"a token before the first start", []string{"a.go", "tokens.json"}, ""},
		{"databases moved away", []string{"store.aside1/LOCK", "journal.aside2/LOCK"}, ""},
		{"the end of a log", []string{"journal.damaged"}, ""},
		{"an audit log", []string{"a.go", "audit/changes-000001.jsonl"}, ""},
		{"a crash while the audit log was created", []string{"audit/"}, ""},
		{"the audit log of something else", []string{"audit/audit.log"}, "other files (audit)"},
		{"a backup", []string{"backup/store/marker.manifest.000001.MANIFEST-000001"}, ""},
		{"backups of something else", []string{"backup/home.tar"}, "other files (backup)"},
	} {
		dir := t.TempDir()
		for _, path := range c.paths {
			full := filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(path, "/") {
				if err := os.MkdirAll(full, 0o700); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(full, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := CheckDataDir(dir); (err != nil) != (c.want != "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if err := CheckDataDir(filepath.Join(t.TempDir(), "new")); err != nil {
		t.Errorf("a directory that does not exist: %v", err)
	}
	for _, path := range []string{"datadir_test.go", "datadir_test.go/below"} {
		if err := CheckDataDir(path); err == nil || !strings.Contains(err.Error(), "is a file, or below one") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// names returns the names of the files in dir.
func names(t *testing.T, dir string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func cut(database, pattern string) func(dir string) error {
	return each(database, pattern, func(path string) error { return os.Truncate(path, 20) })
}

func remove(database, pattern string) func(dir string) error {
	return each(database, pattern, os.Remove)
}

func each(database, pattern string, do func(path string) error) func(dir string) error {
	return func(dir string) error {
		found, err := filepath.Glob(filepath.Join(dir, database, pattern))
		for _, path := range found {
			if err == nil {
				err = do(path)
			}
		}
		return err
	}
}

// file returns a function that replaces the file name in a directory by one with the given text.
func file(name, text string) func(dir string) error {
	return func(dir string) error {
		path := filepath.Join(dir, name)
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		return os.WriteFile(path, []byte(text), 0o600)
	}
}

// swap replaces the store with a database of another program.
func swap(dir string) error {
	path := filepath.Join(dir, "store")
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		return err
	}
	db, err := pebbledb.Open(pebbledb.Options{
		Dir:      path,
		MemTable: 1 << 20,
		Cache:    1 << 20,
		Disk:     disk,
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return errors.Join(db.Set([]byte("key"), []byte("value"), pebble.Sync), db.Close())
}

// later changes the store to a later format.
func later(dir string) error {
	return each("store", "marker.format-version.*", func(path string) error {
		return os.Rename(path, filepath.Join(filepath.Dir(path), "marker.format-version.000099.999"))
	})(dir)
}
