package classify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Class is the declaration of one class.
type Class struct {
	Name       string // with dots
	Super      string // with dots; empty for java.lang.Object and module descriptors
	Interfaces int
	Access     uint16 // access flags of the class file format
}

// Package returns the package of the class, or "" for the unnamed package.
func (c Class) Package() string { return c.Name[:max(0, strings.LastIndexByte(c.Name, '.'))] }

var (
	errTruncated = errors.New("the class file is truncated")
	errNoClass   = errors.New("not a class file")
)

// Tags of the constants that readPool treats specially, and the sizes of the others (JVM specification, §4.4).
const (
	tagUTF8   = 1
	tagLong   = 5
	tagDouble = 6
	tagClass  = 7
)

var constantSizes = [21]int{
	3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2,
}

// ParseClass reads the declaration of a class from its class file. It returns an error if file is truncated or
// malformed, but ignores bytes after the end of the class.
func ParseClass(file []byte) (Class, error) {
	r := reader{rest: file}
	if r.u4() != 0xcafebabe {
		return Class{}, errNoClass
	}
	r.skip(4) // version
	pool, err := readPool(&r)
	if err != nil {
		return Class{}, err
	}
	c := Class{Access: r.u2()}
	this, super := r.u2(), r.u2()
	c.Interfaces = int(r.u2())
	r.skip(2 * c.Interfaces)
	for range 2 { // fields, methods
		for range r.u2() {
			r.skip(6)
			r.attributes()
		}
	}
	r.attributes()
	if r.truncated {
		return Class{}, errTruncated
	}
	if c.Name = pool.className(this); c.Name == "" {
		return Class{}, errors.New("the class file names no class")
	}
	c.Super = pool.className(super)
	return c, nil
}

// constants holds the constants that name classes, by index: the bytes of UTF-8 constants, and the index of the name of
// each class constant.
type constants struct {
	texts map[uint16][]byte
	names map[uint16]uint16
}

func readPool(r *reader) (constants, error) {
	p := constants{texts: make(map[uint16][]byte), names: make(map[uint16]uint16)}
	count := r.u2()
	for i := uint16(1); i < count && !r.truncated; i++ {
		switch tag := r.u1(); {
		case tag == tagUTF8:
			p.texts[i] = r.next(int(r.u2()))
		case tag == tagClass:
			p.names[i] = r.u2()
		case int(tag) < len(constantSizes) && constantSizes[tag] > 0:
			r.skip(constantSizes[tag])
			if tag == tagLong || tag == tagDouble {
				i++
			}
		default:
			if r.truncated {
				return p, errTruncated
			}
			return p, fmt.Errorf("constant %d of the class file has the unknown tag %d", i, tag)
		}
	}
	if r.truncated {
		return p, errTruncated
	}
	return p, nil
}

// className returns the name of the class constant at index, with dots, or "" if there is no such constant or its name
// isn't valid UTF-8.
func (p constants) className(index uint16) string {
	text := p.texts[p.names[index]]
	if len(text) == 0 || !utf8.Valid(text) {
		return ""
	}
	return strings.ReplaceAll(string(text), "/", ".")
}

// reader reads big-endian numbers. Beyond the end, its methods return zeros and set truncated.
type reader struct {
	rest      []byte
	truncated bool
}

func (r *reader) next(n int) []byte {
	if n > len(r.rest) {
		r.truncated, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) skip(n int) { r.next(n) }

func (r *reader) u1() byte {
	if b := r.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u2() uint16 {
	if b := r.next(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u4() uint32 {
	if b := r.next(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// attributes skips a table of attributes.
func (r *reader) attributes() {
	for range r.u2() {
		r.skip(2)
		r.skip(int(r.u4()))
		if r.truncated {
			return
		}
	}
}
