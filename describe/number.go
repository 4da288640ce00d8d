package describe

import (
	"encoding/json"
	"math"
	"time"
)

// Number is a float64 that is encoded in JSON as null if it is NaN or infinite, which means unknown.
type Number float64

// Unknown returns NaN, which is encoded in JSON as null.
func Unknown() Number { return Number(math.NaN()) }

// Known reports whether x is finite.
func (x Number) Known() bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }

// Pointer returns x, or nil if it is unknown.
func (x Number) Pointer() *float64 {
	if !x.Known() {
		return nil
	}
	return (*float64)(&x)
}

// MarshalJSON implements json.Marshaler.
func (x Number) MarshalJSON() ([]byte, error) { return json.Marshal(x.Pointer()) }

// nanos returns d in nanoseconds, or nil if d ≤ 0, which means unknown.
func nanos(d time.Duration) *int64 {
	if d <= 0 {
		return nil
	}
	ns := d.Nanoseconds()
	return &ns
}
