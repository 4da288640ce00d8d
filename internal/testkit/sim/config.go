package sim

import (
	"encoding/json"
	"time"
)

// Fault is a kind of performance fault.
type Fault string

// The faults. [Target] documents their effects.
const (
	SlowPath   Fault = "slow-path"
	Lock       Fault = "lock"
	ThirdParty Fault = "third-party"
	Attribute  Fault = "attribute"
	Host       Fault = "host"
	Payload    Fault = "payload"
	DNS        Fault = "dns"
	Disk       Fault = "disk"
	CPU        Fault = "cpu"
	RetryStorm Fault = "retry-storm"
	Steady     Fault = "steady"
	None       Fault = "none"
)

// Faults returns all faults, with None last.
func Faults() []Fault {
	return []Fault{SlowPath, Lock, ThirdParty, Attribute, Host, Payload, DNS, Disk, CPU, RetryStorm, Steady, None}
}

// Config describes an application. A zero field has its default value. A negative fraction means 0.
type Config struct {
	Seed        uint64  `json:"seed"`
	Fault       Fault   `json:"fault"`       // default None
	Tracepoints int     `json:"tracepoints"` // including variables, excluding the baseline; 50–100 000, default 500
	Services    int     `json:"services"`    // default one per 60 tracepoints, 5–500; at most one per 10
	Rate        float64 `json:"rate"`        // requests per second of all request types together; default 75

	Diurnal  float64       `json:"diurnal"`   // amplitude of the daily cycle of the rate; default 0.3
	HintLoss float64       `json:"hint_loss"` // fraction of tracepoints that don't announce their caller; default 0.1
	Async    float64       `json:"async"`     // fraction of asynchronous calls; default 0.01
	Parallel float64       `json:"parallel"`  // fraction of functions with parallel calls; default 0.15
	Optional float64       `json:"optional"`  // fraction of calls with a probability of 0.1–0.95; default 0.25
	Loops    float64       `json:"loops"`     // fraction of calls that are repeated, 1–5 times on average; default 0.08
	Caches   float64       `json:"caches"`    // fraction of functions behind a cache that hits 0.5–0.95; default 0.06
	Messages float64       `json:"messages"`  // fraction of operations that consume messages; default 0.05
	Failures float64       `json:"failures"`  // fraction of remote calls that fail and are retried; default 0.002
	Overhead float64       `json:"overhead"`  // factor on the time of a hit of an enabled tracepoint; default 1
	Strength float64       `json:"strength"`  // factor on the strength of the fault; default 1
	Skew     time.Duration `json:"skew_ns"`   // largest offset of a host's clock; default 0

	CalleeNames    bool `json:"callee_names,omitempty"`    // name calls after their callees, without attributes
	AllAttributes  bool `json:"all_attributes,omitempty"`  // keep even attributes that `sibyl serve` drops by default
	UnknownCallers bool `json:"unknown_callers,omitempty"` // agents know neither callers nor operations of functions
}

// fractions returns the fields for which a negative number means 0.
func (c *Config) fractions() []*float64 {
	return []*float64{
		&c.Diurnal, &c.HintLoss, &c.Async, &c.Parallel, &c.Optional, &c.Loops, &c.Caches, &c.Messages, &c.Failures,
		&c.Overhead, &c.Strength,
	}
}

// defaultFractions lists the defaults of [Config.fractions].
var defaultFractions = [...]float64{0.3, 0.1, 0.01, 0.15, 0.25, 0.08, 0.06, 0.05, 0.002, 1, 1}

// withDefaults returns c with defaults filled in and all values within bounds. It is idempotent.
func (c Config) withDefaults() Config {
	if c.Fault == "" {
		c.Fault = None
	}
	c.Tracepoints = clampOr(c.Tracepoints, 500, 50, 100_000)
	c.Services = clampOr(c.Services, min(max(c.Tracepoints/60, 5), 500), 1, min(c.Tracepoints/10, 500))
	if c.Rate <= 0 {
		c.Rate = 75
	}
	for i, value := range c.fractions() {
		switch {
		case *value == 0:
			*value = defaultFractions[i]
		case *value < 0:
			*value = -1
		}
	}
	return c
}

// effective returns c with 0 in place of negative fractions. The defaults of c must be filled in.
func (c Config) effective() Config {
	for _, value := range c.fractions() {
		*value = max(*value, 0)
	}
	return c
}

// clampOr returns n, or fallback if n is 0, clamped to [low, high].
func clampOr(n, fallback, low, high int) int {
	if n == 0 {
		n = fallback
	}
	return min(max(n, low), high)
}

// String returns c with its defaults as one line of JSON. The decoded configuration gives the same application.
func (c Config) String() string {
	b, err := json.Marshal(c.withDefaults())
	if err != nil {
		return err.Error() // infinite or NaN
	}
	return string(b)
}
