package join

import (
	"bytes"
	"encoding/binary"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// message returns a field of a message.
func message(number protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), bytes.Join(parts, nil))
}

func textAttribute(key, value string) []byte {
	return message(1, message(1, []byte(key)), message(2, message(1, []byte(value))))
}

// published returns memory with a context at address 0.
func published(version uint32, payload []byte) []byte {
	memory := binary.LittleEndian.AppendUint32([]byte("OTEL_CTX"), version)
	memory = binary.LittleEndian.AppendUint32(memory, uint32(len(payload)))
	memory = binary.LittleEndian.AppendUint64(memory, 1)
	memory = binary.LittleEndian.AppendUint64(memory, contextHeader)
	return append(memory, payload...)
}

var resource = message(1, textAttribute("service.name", "orders"), message(1, message(1, []byte("n")), message(2, []byte{0x18, 5})), textAttribute("x", "y"))

// A context holds the resource of the process. One that is broken, being written or of another version holds nothing.
func TestPublished(t *testing.T) {
	additional := append(bytes.Clone(resource), message(2, message(1, []byte("threadlocal.schema_version")))...)
	got, err := readContextAt(bytes.NewReader(published(2, additional)), 0)
	if err != nil || len(got) != 2 || got["service.name"] != "orders" || got["x"] != "y" {
		t.Errorf("%v, %v", got, err)
	}
	writing := published(2, resource)
	copy(writing[16:], make([]byte, 8))
	huge := published(2, resource)
	copy(huge[12:], []byte{0xff, 0xff, 0xff, 0x7f})
	for name, memory := range map[string][]byte{
		"version": published(3, resource), "being written": writing, "huge": huge, "short": published(2, resource)[:40],
		"broken": published(2, resource[:len(resource)-3]), "empty": nil,
	} {
		if got, err := readContextAt(bytes.NewReader(memory), 0); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestContextNames(t *testing.T) {
	for name, want := range map[string]bool{
		"/memfd:OTEL_CTX": true, "[anon_shmem:OTEL_CTX]": true, "[anon:OTEL_CTX]": true, "/tmp/OTEL_CTX": false, "[anon:OTEL_CTX2]": false,
	} {
		if isContextName(name) != want {
			t.Errorf("%s: want %t", name, want)
		}
	}
}

// Broken contexts cause errors, not panics.
func FuzzPublished(f *testing.F) {
	f.Add(published(2, resource))
	f.Fuzz(func(t *testing.T, memory []byte) {
		if got, err := readContextAt(bytes.NewReader(memory), 0); err != nil && got != nil {
			t.Errorf("%v, %v", got, err)
		}
	})
}
