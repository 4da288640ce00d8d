// Package bpf contains the programs of the kernel agent as C source and as object files, with the loaders that bpf2go
// generates. `make bpf` builds them. The object files are committed so that building Sibyl needs no C compiler.
package bpf
