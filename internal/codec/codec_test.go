package codec_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// field is a value of one of the kinds that a Reader reads.
type field struct {
	append func([]byte) []byte
	equal  func(*codec.Reader) bool // reads it back and compares
}

var fields = rapid.Custom(func(t *rapid.T) field {
	word, signed := rapid.Uint64().Draw(t, "word"), rapid.Int64().Draw(t, "signed")
	float := rapid.Float64().Draw(t, "float")
	text, flag := rapid.String().Draw(t, "text"), rapid.Bool().Draw(t, "flag")
	return []field{
		{
			func(b []byte) []byte { return codec.AppendWords(b, word) },
			func(r *codec.Reader) bool { return r.Word() == word },
		},
		{
			func(b []byte) []byte { return codec.AppendUvarints(b, word) },
			func(r *codec.Reader) bool { return r.Uvarint() == word },
		},
		{func(b []byte) []byte { return codec.AppendUvarint128(b, word, uint64(signed)) }, func(r *codec.Reader) bool {
			hi, lo := r.Uvarint128()
			return hi == word && lo == uint64(signed)
		}},
		{
			func(b []byte) []byte { return codec.AppendVarints(b, signed) },
			func(r *codec.Reader) bool { return r.Varint() == signed },
		},
		{
			func(b []byte) []byte { return codec.AppendFloats(b, float) },
			func(r *codec.Reader) bool { return r.Finite() == float },
		},
		{
			func(b []byte) []byte { return codec.AppendBools(b, flag) },
			func(r *codec.Reader) bool { return r.Bool() == flag },
		},
		{
			func(b []byte) []byte { return codec.AppendText(b, text) },
			func(r *codec.Reader) bool { return r.Text(math.MaxInt) == text },
		},
		{
			func(b []byte) []byte {
				return codec.AppendSection(b, func(b []byte) []byte { return append(b, text...) })
			},
			func(r *codec.Reader) bool { return string(r.Section()) == text },
		},
	}[rapid.IntRange(0, 7).Draw(t, "kind")]
})

// Values are read as they were appended, and nothing remains. Every proper prefix of the bytes has a fault.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(fields, 1, 8).Draw(t, "fields")
		var b []byte
		for _, f := range list {
			b = f.append(b)
		}
		r := codec.NewReader(b)
		for i, f := range list {
			if !f.equal(r) || r.Bad() {
				t.Fatalf("field %d differs from the one appended", i)
			}
		}
		if r.Len() != 0 || r.Err() != nil {
			t.Fatalf("%d bytes remain, %v", r.Len(), r.Err())
		}
		r = codec.NewReader(b[:rapid.IntRange(0, len(b)-1).Draw(t, "length")])
		for _, f := range list {
			f.equal(r)
		}
		if !errors.Is(r.Err(), codec.ErrCorrupt) || r.Rest() != nil {
			t.Fatal("truncated bytes read without a fault")
		}
	})
}

// Longer forms of a number, and numbers too large for their type, are faults.
func TestCanonical(t *testing.T) {
	long := bytes.Repeat([]byte{0xff}, 20)
	for _, b := range [][]byte{{0x80, 0}, {0x81, 0x80, 0}, {0x80}, {}, long, append(long[:9:9], 2)} {
		if r := codec.NewReader(b); r.Uvarint() != 0 || !r.Bad() {
			t.Errorf("Uvarint reads % x", b)
		}
	}
	for _, b := range [][]byte{{0x80, 0}, {0x80}, {}, long, append(long[:18:18], 4)} {
		if r := codec.NewReader(b); !bad128(r) {
			t.Errorf("Uvarint128 reads % x", b)
		}
	}
	if r := codec.NewReader(append(long[:18:18], 3)); bad128(r) {
		t.Error("Uvarint128 refuses 2¹²⁸ − 1")
	}
}

func bad128(r *codec.Reader) bool {
	r.Uvarint128()
	return r.Bad()
}

// Limits hold up to their last valid value.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		read func(*codec.Reader)
		bad  bool
	}{
		{"below", []byte{4}, func(r *codec.Reader) { r.Below(5) }, false},
		{"not below", []byte{5}, func(r *codec.Reader) { r.Below(5) }, true},
		{"count", []byte{2, 0, 0, 0, 0}, func(r *codec.Reader) { r.Count(2) }, false},
		{"too many", []byte{3, 0, 0, 0, 0}, func(r *codec.Reader) { r.Count(2) }, true},
		{"text", []byte{2, 'a', 'b'}, func(r *codec.Reader) { r.Text(2) }, false},
		{"long text", []byte{2, 'a', 'b'}, func(r *codec.Reader) { r.Text(1) }, true},
		{"flag", []byte{2}, func(r *codec.Reader) { r.Bool() }, true},
		{"version", []byte{2}, func(r *codec.Reader) { r.Version(1, 2) }, false},
		{"unknown version", []byte{3}, func(r *codec.Reader) { r.Version(1, 2) }, true},
		{"no version", nil, func(r *codec.Reader) { r.Version(0) }, true},
		{"infinite", codec.AppendFloats(nil, math.Inf(1)), func(r *codec.Reader) { r.Finite() }, true},
		{"NaN", codec.AppendFloats(nil, math.NaN()), func(r *codec.Reader) { r.Finite() }, true},
		{"negative length", nil, func(r *codec.Reader) { r.Bytes(-1) }, true},
		{"check", nil, func(r *codec.Reader) { r.Check(false) }, true},
		{"section", codec.AppendWords(nil, 1), func(r *codec.Reader) { r.Section() }, true},
		{
			"huge section", append(codec.AppendWords(nil, math.MaxUint64), 1),
			func(r *codec.Reader) { r.Section() }, true,
		},
	} {
		r := codec.NewReader(c.b)
		c.read(r)
		if r.Bad() != c.bad || c.bad != (r.Err() != nil) {
			t.Errorf("%s: bad %t, want %t", c.name, r.Bad(), c.bad)
		}
	}
}
