// Package bpf contains the BPF programs of the kernel agent, as C source and as object files, and the loaders that
// bpf2go generates. `make bpf` builds the object files. The object files are committed so that building Sibyl needs no
// C compiler.
package bpf
