package tracepoint

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// The header is complete once it has its signature, and refers to the payload.
func TestFillContext(t *testing.T) {
	payload := encodeResource(map[string]string{"service.name": "shop", "a": "b"})
	want := []byte("\x0a\x23\x0a\x08\x0a\x01a\x12\x03\x0a\x01b\x0a\x17\x0a\x0cservice.name\x12\x06\x0a\x04shop")
	want[1] = byte(len(want) - 2)
	want[13] = byte(len(want) - 14)
	if !bytes.Equal(payload, want) {
		t.Errorf("%q, want %q", payload, want)
	}
	memory := make([]byte, pageSize)
	fillContext(memory, payload, 1<<20, 7)
	n := binary.NativeEndian
	if string(memory[:8]) != contextName || n.Uint32(memory[8:]) != 2 || int(n.Uint32(memory[12:])) != len(payload) ||
		n.Uint64(memory[16:]) != 7 || n.Uint64(memory[24:]) != 1<<20+headerSize ||
		!bytes.Equal(memory[headerSize:][:len(payload)], payload) {
		t.Errorf("%q", memory[:headerSize+len(payload)])
	}
}

// A process with several services publishes no resource.
func TestSeveralServices(t *testing.T) {
	publish(map[string]string{"service.name": "shop"})
	memory := published.memory
	if memory == nil {
		t.Skip("this system does not allow it")
	}
	publish(map[string]string{"service.name": "shop"})
	if at := memory[publishedAt : publishedAt+8]; bytes.Equal(at, make([]byte, 8)) {
		t.Error("the same service again withdraws it")
	}
	publish(map[string]string{"service.name": "stock"})
	if at := memory[publishedAt : publishedAt+8]; !bytes.Equal(at, make([]byte, 8)) {
		t.Error("two services are published as one")
	}
}
