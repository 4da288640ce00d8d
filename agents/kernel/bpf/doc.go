// Package bpf contains the programs of the kernel agent as C and as objects, with the loaders that bpf2go generates.
// make bpf builds them. The objects are committed, because a build of Sibyl needs no C compiler.
package bpf
