package units

import (
	"strconv"
	"strings"
)

// byteUnits lists the units in the order that ParseBytes tries their suffixes. Bytes uses only the first four.
var byteUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"K", 1 << 10},
	{"M", 1 << 20},
	{"G", 1 << 30},
	{"T", 1 << 40},
	{"B", 1},
	{"", 1},
}

// ParseBytes parses a number of bytes from 0 to below 2⁶², like "512MiB", "1.5 GB" or "4096". It returns false if text
// is invalid.
func ParseBytes(text string) (int64, bool) {
	for _, u := range byteUnits {
		if digits, ok := strings.CutSuffix(text, u.suffix); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
			bytes := n * float64(u.bytes)
			return int64(bytes), err == nil && bytes >= 0 && bytes < 1<<62
		}
	}
	return 0, false
}

// Bytes formats n like "512MiB", so that [ParseBytes] reads it back exactly. The result is a plain number if n isn't a
// multiple of any unit.
func Bytes(n int64) string {
	for _, u := range byteUnits[:4] {
		if x := n / u.bytes; n%u.bytes == 0 && x > 0 && x < 1<<10 {
			return strconv.FormatInt(x, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
