package bpf

import (
	"bytes"
	"compress/gzip"
	"io"
)

// unpack decompresses an object file that `make bpf` compressed. Uncompressed, the objects would take four times as
// much space in the binary.
func unpack(packed []byte) *bytes.Reader {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	var object []byte
	if err == nil {
		object, err = io.ReadAll(z)
	}
	if err != nil {
		panic(err) // the object is part of the program
	}
	return bytes.NewReader(object)
}
