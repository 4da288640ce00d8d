package join

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A running process tells its service as OTEP 4719 describes, from later on, too.
func TestPublishedByProcess(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "") // the environment of the kernel does not change
	j := NewJoiner("/proc", "", "here")
	pid := uint32(os.Getpid())
	if _, _, err := j.Context(pid); err == nil {
		t.Skip("the environment of the test names a service")
	}
	fd, err := unix.MemfdCreate(contextName, unix.MFD_CLOEXEC)
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
	copy(mapping, published(2, resource))
	binary.LittleEndian.PutUint64(mapping[24:], uint64(uintptr(unsafe.Pointer(&mapping[contextHeader]))))
	if _, _, err := j.Context(pid); err != nil && j.processes[pid].service == nil {
		t.Fatal(err)
	}
	s := j.processes[pid].service
	if s == nil || len(s.Attributes) != 3 || s.Attributes[1] != (Attribute{serviceName, "orders"}) {
		t.Errorf("%+v", s)
	}
}
