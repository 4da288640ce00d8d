package describe

import (
	"encoding/json"
	"math"
	"time"
)

// Number is a float64 that JSON encodes as null if it is not a finite number: unknown.
type Number float64

// Unknown returns the number that JSON encodes as null.
func Unknown() Number { return Number(math.NaN()) }

// Known reports whether x is finite.
func (x Number) Known() bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }

// Pointer returns x; nil if it is unknown.
func (x Number) Pointer() *float64 {
	if !x.Known() {
		return nil
	}
	return (*float64)(&x)
}

// MarshalJSON implements json.Marshaler.
func (x Number) MarshalJSON() ([]byte, error) { return json.Marshal(x.Pointer()) }

// nanos returns d in nanoseconds; nil if it is not above 0: unknown.
func nanos(d time.Duration) *int64 {
	if d <= 0 {
		return nil
	}
	ns := d.Nanoseconds()
	return &ns
}
