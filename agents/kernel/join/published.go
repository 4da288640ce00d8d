package join

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The process context of OTEP 4719: a header in a mapping with a name, which points to the resource.
const (
	contextName    = "OTEL_CTX"
	contextVersion = 2
	contextHeader  = 32
	maxContext     = 64 << 10 // bytes of a payload
)

var errUnpublished = errors.New("the process publishes no context")

// readPublished returns the string attributes of the resource that a process publishes.
func (j *Joiner) readPublished(pid uint32) (map[string]string, error) {
	address, err := findMapping(j.path(pid, "maps"))
	if err != nil {
		return nil, err
	}
	memory, err := os.Open(j.path(pid, "mem"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = memory.Close() }() // read only
	return readContextAt(memory, address)
}

// findMapping returns the address of the mapping with the header.
func findMapping(maps string) (int64, error) {
	f, err := os.Open(maps)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // read only
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// 7f00-8000 rw-p 00000000 00:01 12 /memfd:OTEL_CTX (deleted)
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || !isContextName(fields[5]) {
			continue
		}
		begin, _, _ := strings.Cut(fields[0], "-")
		address, err := strconv.ParseInt(begin, 16, 64)
		if err != nil {
			return 0, fmt.Errorf("read the mappings of a process: %w", err)
		}
		return address, nil
	}
	return 0, errors.Join(errUnpublished, lines.Err())
}

func isContextName(name string) bool {
	for _, prefix := range []string{"/memfd:", "[anon_shmem:", "[anon:"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return strings.TrimSuffix(rest, "]") == contextName
		}
	}
	return false
}

// readContextAt reads the context whose header is at an address. It returns an error if the process changes it
// meanwhile.
func readContextAt(memory io.ReaderAt, address int64) (map[string]string, error) {
	var before, after [contextHeader]byte
	if _, err := memory.ReadAt(before[:], address); err != nil {
		return nil, fmt.Errorf("read the context of a process: %w", err)
	}
	h := binary.LittleEndian
	version, size, published, at := h.Uint32(before[8:]), h.Uint32(before[12:]), h.Uint64(before[16:]), h.Uint64(before[24:])
	if string(before[:8]) != contextName || version != contextVersion || published == 0 || size > maxContext || at > 1<<62 {
		return nil, errUnpublished
	}
	payload := make([]byte, size)
	if _, err := memory.ReadAt(payload, int64(at)); err != nil {
		return nil, fmt.Errorf("read the context of a process: %w", err)
	}
	if _, err := memory.ReadAt(after[:], address); err != nil {
		return nil, fmt.Errorf("read the context of a process: %w", err)
	}
	if before != after {
		return nil, errUnpublished
	}
	return decodeContext(payload)
}

// Numbers of fields: ProcessContext, Resource, KeyValue and AnyValue of OTLP all begin with the interesting one.
const (
	first  = 1
	second = 2
)

// decodeContext returns the string attributes of the resource in a message ProcessContext.
func decodeContext(payload []byte) (map[string]string, error) {
	attributes := make(map[string]string)
	err := eachField(payload, first, func(resource []byte) error {
		return eachField(resource, first, func(attribute []byte) error {
			var key, value string
			isText := false
			err := eachField(attribute, first, func(b []byte) error {
				key = string(b)
				return nil
			})
			if err != nil {
				return err
			}
			err = eachField(attribute, second, func(v []byte) error {
				return eachField(v, first, func(b []byte) error {
					value, isText = string(b), true
					return nil
				})
			})
			if isText {
				attributes[key] = value
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return attributes, nil
}

// eachField calls do for each field of a message with a number that holds bytes.
func eachField(message []byte, number protowire.Number, do func([]byte) error) error {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return fmt.Errorf("decode the context of a process: %w", protowire.ParseError(size))
		}
		message = message[size:]
		length := protowire.ConsumeFieldValue(n, kind, message)
		if length < 0 {
			return fmt.Errorf("decode the context of a process: %w", protowire.ParseError(length))
		}
		if n == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			if err := do(value); err != nil {
				return err
			}
		}
		message = message[length:]
	}
	return nil
}
