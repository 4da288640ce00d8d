package cli

import "testing"

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{"512MiB": 512 << 20, "0": 0, "-1": 0, "x": 0} {
		var s Size
		if err := s.Set(text); (err == nil) != (want != 0) || s != want {
			t.Errorf("%q: %d, %v; want %d", text, s, err, want)
		}
	}
}
