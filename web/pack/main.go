// Command pack replaces every file in a directory with its gzip-compressed form: `go run ./web/pack web/dist`. Equal
// files yield equal bytes on every machine, unlike with Node's gzip, which depends on the version of zlib.
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pack DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, ".gz") {
			return err
		}
		return pack(name)
	})
}

// pack replaces the file called name with its gzip-compressed form, which has the suffix .gz.
func pack(name string) error {
	plain, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(plain); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(name+".gz", b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Remove(name)
}
