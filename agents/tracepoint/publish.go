package tracepoint

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
)

// The process publishes its resource in a named mapping, as described in OpenTelemetry's OTEP 4719, for external
// readers such as Sibyl's kernel agent.
const (
	contextName    = "OTEL_CTX"
	contextVersion = 2
	headerSize     = 32
	publishedAt    = 16 // offset of the time in the header; the time is 0 while nothing is published
	pageSize       = 64 << 10
)

// published is the resource that this process publishes.
var published struct {
	sync.Mutex // guards the fields below
	resource   map[string]string
	memory     []byte // nil if nothing is published
	done       bool   // nothing may be published any more: several services share the process, or the SDK publishes
}

// publish publishes the resource of the process, unless it is too large. If a different resource is already published,
// publish withdraws it for good, because readers couldn't tell which of the two a thread works for.
func publish(resource map[string]string) {
	p := &published
	p.Lock()
	defer p.Unlock()
	switch {
	case p.done || maps.Equal(p.resource, resource):
		return
	case p.memory != nil:
		clear(p.memory[publishedAt : publishedAt+8])
		p.done = true
		return
	}
	payload := encodeResource(resource)
	if len(payload) > pageSize-headerSize {
		return
	}
	p.memory = mapContext(payload)
	p.resource, p.done = maps.Clone(resource), p.memory == nil
}

// fillContext writes the payload and then the header to memory. It writes the signature last.
func fillContext(memory, payload []byte, address, now uint64) {
	copy(memory[headerSize:], payload)
	binary.NativeEndian.PutUint32(memory[8:], contextVersion)
	binary.NativeEndian.PutUint32(memory[12:], uint32(len(payload))) //nolint:gosec // at most a page
	binary.NativeEndian.PutUint64(memory[publishedAt:], now)
	binary.NativeEndian.PutUint64(memory[24:], address+headerSize)
	copy(memory, contextName)
}

// encodeResource returns the protobuf message ProcessContext. Field 1 of the message is the resource, and field 1 of
// the resource holds the attributes. An attribute is a pair of a key and a value, and field 1 of a value is a string.
func encodeResource(resource map[string]string) []byte {
	var attributes []byte
	for _, key := range slices.Sorted(maps.Keys(resource)) {
		pair := appendField(nil, 1, []byte(key))
		pair = appendField(pair, 2, appendField(nil, 1, []byte(resource[key])))
		attributes = appendField(attributes, 1, pair)
	}
	return appendField(nil, 1, attributes)
}

// appendField appends a field with the given number and bytes to a protobuf message. number must be below 16.
func appendField(to []byte, number byte, value []byte) []byte {
	const lengthDelimited = 2
	to = append(to, number<<3|lengthDelimited)
	to = binary.AppendUvarint(to, uint64(len(value)))
	return append(to, value...)
}
