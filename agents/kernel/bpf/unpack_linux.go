package bpf

import (
	"bytes"
	"compress/gzip"
	"io"
)

// unpack returns an object that make bpf has compressed: plain, it would take four times the space in the program.
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
