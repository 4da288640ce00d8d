package resource

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A running process has a service once it has published it as described in OTEP 4719.
func TestPublishedByProcess(t *testing.T) {
	fd, err := unix.MemfdCreate(contextSignature, unix.MFD_CLOEXEC)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	mapping, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mapping) }()
	payload := message(1, append(message(1, attribute(Service, "published")), message(1, attribute("x", "y"))...))
	copy(mapping, contextSignature)
	order := binary.NativeEndian
	order.PutUint32(mapping[8:], contextVersion)
	order.PutUint32(mapping[12:], uint32(len(payload)))
	order.PutUint64(mapping[24:], uint64(uintptr(unsafe.Pointer(&mapping[contextHeader]))))
	copy(mapping[contextHeader:], payload)
	pid := uint32(os.Getpid())
	if got, err := Of("/proc", pid, false); err == nil {
		t.Errorf("being written: %v", got)
	}
	order.PutUint64(mapping[16:], 1)
	if got, err := Of("/proc", pid, false); err != nil || got[Service] != "published" || got["x"] != "y" {
		t.Errorf("%v, %v", got, err)
	}
}
