package eval

import (
	"encoding/json"
	"math"
)

// Rate is a fraction, a mean or a median over cases. If there are no cases, it is NaN, and null in JSON.
type Rate float64

// None returns the rate over no cases, NaN.
func None() Rate { return Rate(math.NaN()) }

// MarshalJSON implements [json.Marshaler].
func (r Rate) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(r)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(r))
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *Rate) UnmarshalJSON(data []byte) error {
	var x *float64
	err := json.Unmarshal(data, &x)
	if *r = None(); x != nil {
		*r = Rate(*x)
	}
	return err
}
