//go:build amd64 || arm64

package tracepoint

import (
	"bytes"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// mapContext returns a memory mapping that contains payload, the context of the process, and exists until the process
// ends. It returns nil if the system doesn't allow such a mapping, or if another library already publishes a context.
func mapContext(payload []byte) []byte {
	if maps, err := os.ReadFile("/proc/self/maps"); err != nil || bytes.Contains(maps, []byte(contextName)) {
		return nil
	}
	memfdCreate := uintptr(319)
	if runtime.GOARCH == "arm64" {
		memfdCreate = 279
	}
	const closeOnExec, dontFork = 1, 10
	name := append([]byte(contextName), 0)
	fd, _, errno := syscall.Syscall(memfdCreate, uintptr(unsafe.Pointer(&name[0])), closeOnExec, 0)
	if errno != 0 {
		return nil
	}
	defer func() { _ = syscall.Close(int(fd)) }() // the mapping stays
	if err := syscall.Ftruncate(int(fd), pageSize); err != nil {
		return nil
	}
	memory, err := syscall.Mmap(int(fd), 0, pageSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	if err := syscall.Madvise(memory, dontFork); err != nil {
		_ = syscall.Munmap(memory) // otherwise a child would publish it, too
		return nil
	}
	now := uint64(time.Now().UnixNano()) //nolint:gosec // after 1970
	fillContext(memory, payload, uint64(uintptr(unsafe.Pointer(&memory[0]))), now)
	return memory
}
