package plain_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/codec/plain"
)

type value struct {
	Name    string
	Numbers []int64
	ByKey   map[uint64]string
	Ratio   float64
	ID      [16]byte
	Part    *value `json:"part"`
}

func TestRoundTrip(t *testing.T) {
	v := value{
		Name:    "a",
		Numbers: []int64{-1, math.MaxInt64},
		ByKey:   map[uint64]string{2: "b", 1: "c", math.MaxUint64: ""},
		Ratio:   math.Inf(-1),
		ID:      [16]byte{15: 7},
		Part:    &value{Numbers: []int64{}},
	}
	b := plain.Append([]byte("head"), &v)
	var got value
	if err := plain.Decode(b[4:], &got); err != nil || cmp.Diff(v, got) != "" {
		t.Errorf("%v %s", err, cmp.Diff(v, got))
	}
	if again := plain.Append([]byte("head"), &got); !bytes.Equal(b, again) {
		t.Error("equal values give different bytes")
	}
}

// Fields that the value lacks are ignored.
func TestOtherFields(t *testing.T) {
	b := plain.Append(nil, struct{ Name, Gone string }{"a", "b"})
	var got value
	if err := plain.Decode(b, &got); err != nil || cmp.Diff(value{Name: "a"}, got) != "" {
		t.Errorf("%v %+v", err, got)
	}
}

func TestCorrupt(t *testing.T) {
	b := plain.Append(nil, &value{Name: "a", Numbers: []int64{1}})
	for _, bad := range [][]byte{
		nil, b[:len(b)-1], append(bytes.Clone(b), 0),
		{0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		{0x01},
	} {
		if err := plain.Decode(bad, new(value)); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("% x: %v", bad, err)
		}
	}
}
