// Package classtest makes class files and archives for tests.
package classtest

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Class returns the class file of a public class with the given name and without members.
func Class(name string) []byte {
	b := []byte{0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 55, 0, 5}
	for i, n := range []string{name, "java.lang.Object"} {
		n = strings.ReplaceAll(n, ".", "/")
		b = append(b, 1) // a text
		b = binary.BigEndian.AppendUint16(b, uint16(len(n)))
		b = append(append(b, n...), 7, 0, byte(2*i+1)) // the class of that name
	}
	b = append(b, 0, 0x21, 0, 2, 0, 4) // public class, super class
	return append(b, make([]byte, 8)...)
}

// Zip returns an archive of files, compressed except for jars, which are stored. Names that end with a
// slash are folders.
func Zip(t testing.TB, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		if strings.HasSuffix(name, ".jar") {
			h.Method = zip.Store // as Spring Boot does
		}
		w, err := z.CreateHeader(h)
		if err == nil && !strings.HasSuffix(name, "/") {
			_, err = w.Write(files[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
