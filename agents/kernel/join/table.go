package join

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sibyl-trace/sibyl/agents/kernel/resource"
)

// The JVM agent's table of threads (see [ThreadTable]) follows a page that starts with the header of the process's
// context. The header is followed by the signature, the version and the number of slots of the table.
const (
	tableSignature = "SIBYLTHR"
	tableVersion   = 1
	tableHeader    = 32 // offset of the signature
	tablePage      = 4096
	maxSlots       = 1 << 22
)

var errNoTable = errors.New("the process has no table of threads")

// tableContext returns the location of the table of a process's threads. folder is the process's folder in the proc
// file system.
func tableContext(folder string) (c Context, err error) {
	at, err := resource.FindThreads(filepath.Join(folder, "maps"))
	if err != nil {
		return Context{}, err
	}
	memory, err := os.Open(filepath.Join(folder, "mem"))
	if err != nil {
		return Context{}, err
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	var header [16]byte
	if _, err := memory.ReadAt(header[:], at+tableHeader); err != nil {
		return Context{}, fmt.Errorf("read the table of threads: %w", err)
	}
	version, slots := binary.NativeEndian.Uint32(header[8:]), binary.NativeEndian.Uint32(header[12:])
	if string(header[:8]) != tableSignature || version != tableVersion || slots == 0 || slots > maxSlots {
		return Context{}, fmt.Errorf("%q, version %d, %d slots: %w", header[:8], version, slots, errNoTable)
	}
	return Context{Kind: ThreadTable, Table: uint64(at) + tablePage, Slots: slots}, nil
}
