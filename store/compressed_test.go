package store

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// The pieces of a state are one compressed block, however large the state is.
func TestCompressed(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{0, 1, 31, pieceSize, 4 * pieceSize, 9*pieceSize + 17} {
		state := make([]byte, size)
		for i := range state {
			state[i] = byte(rng.IntN(1 + i%200))
		}
		var packed []byte
		for piece := range compressed(state) {
			if len(piece) > pieceSize {
				t.Errorf("a piece of %d bytes", len(piece))
			}
			packed = append(packed, piece...)
		}
		if got, err := decompress(packed); err != nil || !bytes.Equal(got, state) {
			t.Errorf("%d bytes: got %d, error %v", size, len(got), err)
		}
	}
}
