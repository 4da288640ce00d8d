package resource

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The process context of OTEP 4719 (version 2): a named mapping starts with this header, in the machine's byte order.
// The payload is a protobuf message whose field 1 is the resource.
const (
	contextSignature = "OTEL_CTX"
	contextVersion   = 2
	contextHeader    = 32
	maxContext       = 16 << 10 // bytes of a payload
	contextAttempts  = 3        // attempts to read a context that the process is updating
)

var (
	errNoContext = errors.New("the process publishes no context")
	errUpdating  = errors.New("the process updates its context")
)

// readContext returns the resource that a process publishes. The error wraps errNoContext if the process publishes no
// valid context, and errUpdating if the process keeps changing the context. folder is the process's folder in the proc
// file system.
func readContext(folder string) (attributes map[string]string, err error) {
	at, err := findContext(filepath.Join(folder, "maps"))
	if err != nil {
		return nil, err
	}
	memory, err := os.Open(filepath.Join(folder, "mem"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	for range contextAttempts {
		var payload []byte
		if payload, err = readPayload(memory, at); err == nil {
			return decodeContext(payload)
		}
		if !errors.Is(err, errUpdating) {
			return nil, err
		}
	}
	return nil, err
}

// threadsName is the prefix of the names of files that the JVM agent maps, because it cannot name memory otherwise.
// These mappings also start with a context.
const threadsName = "sibyl-threads-"

func isThreads(mapping string) bool { return strings.HasPrefix(filepath.Base(mapping), threadsName) }

// FindThreads returns the address of the mapping where the JVM agent keeps the spans of threads. name is the path of
// the process's list of mappings, /proc/PID/maps.
func FindThreads(name string) (at int64, err error) { return findMapping(name, isThreads) }

// findContext returns the address of the mapping with the context. name is the path of the process's list of mappings.
func findContext(name string) (at int64, err error) {
	return findMapping(name, func(mapping string) bool {
		switch mapping {
		case "[anon:" + contextSignature + "]", "[anon_shmem:" + contextSignature + "]", "/memfd:" + contextSignature:
			return true
		}
		return isThreads(mapping)
	})
}

// findMapping returns the address of the first mapping with a wanted name, or errNoContext if there is no such mapping.
// name is the path of the process's list of mappings.
func findMapping(name string, wanted func(mapping string) bool) (at int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			continue
		}
		if wanted(fields[5]) {
			from, _, _ := strings.Cut(fields[0], "-")
			return strconv.ParseInt(from, 16, 64)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, errNoContext
}

// readPayload returns the payload of the context at the address `at`. It returns errUpdating if the process changes the
// payload during the call.
func readPayload(memory *os.File, at int64) ([]byte, error) {
	var header, again [contextHeader]byte
	if _, err := memory.ReadAt(header[:], at); err != nil {
		return nil, err
	}
	order := binary.NativeEndian
	version, size := order.Uint32(header[8:]), order.Uint32(header[12:])
	published, from := order.Uint64(header[16:]), order.Uint64(header[24:])
	switch {
	case string(header[:8]) != contextSignature || version != contextVersion:
		return nil, fmt.Errorf("%q, version %d: %w", header[:8], version, errNoContext)
	case published == 0:
		return nil, errUpdating
	case size > maxContext || int64(from) <= 0:
		return nil, fmt.Errorf("a context of %d bytes: %w", size, errNoContext)
	}
	payload := make([]byte, size)
	if _, err := memory.ReadAt(payload, int64(from)); err != nil {
		return nil, err
	}
	if _, err := memory.ReadAt(again[:], at); err != nil {
		return nil, err
	}
	if !bytes.Equal(header[:], again[:]) {
		return nil, errUpdating
	}
	return payload, nil
}

// decodeContext returns the attributes in payload whose values are non-empty strings.
func decodeContext(payload []byte) (map[string]string, error) {
	attributes := make(map[string]string)
	err := eachMessage(payload, 1, func(resource []byte) error {
		return eachMessage(resource, 1, func(attribute []byte) error {
			var key, value string
			err := errors.Join(
				eachMessage(attribute, 1, func(b []byte) error { key = string(b); return nil }),
				eachMessage(attribute, 2, func(any []byte) error {
					return eachMessage(any, 1, func(b []byte) error { value = string(b); return nil })
				}),
			)
			if key != "" && value != "" {
				attributes[key] = value
			}
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("decode the context of a process: %w", err)
	}
	return attributes, nil
}

// eachMessage calls f with the value of each field of the message b that has the given number and is bytes, a string or
// a message.
func eachMessage(b []byte, number protowire.Number, f func([]byte) error) error {
	for len(b) > 0 {
		n, kind, length := protowire.ConsumeTag(b)
		if length < 0 {
			return protowire.ParseError(length)
		}
		b = b[length:]
		if n == number && kind == protowire.BytesType {
			value, length := protowire.ConsumeBytes(b)
			if length < 0 {
				return protowire.ParseError(length)
			}
			if err := f(value); err != nil {
				return err
			}
			b = b[length:]
			continue
		}
		if length = protowire.ConsumeFieldValue(n, kind, b); length < 0 {
			return protowire.ParseError(length)
		}
		b = b[length:]
	}
	return nil
}
