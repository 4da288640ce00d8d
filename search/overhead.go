package search

import (
	"cmp"
	"math"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// ArmTimes summarizes the durations of the requests of one subject in one arm.
type ArmTimes struct {
	Subject  Subject
	Arm      trace.Symbol // 0 for requests with no tracepoint on while the current plan applied
	On       int          // number of tracepoints that are on in the arm
	N        uint64       // number of requests
	Mean     float64      // mean duration in ns
	Variance float64      // variance of single durations in ns²
}

// Overhead is the time that the instrumentation itself adds to a request. Arms are random shares of the same requests,
// so their durations differ only by instrumentation.
type Overhead struct {
	Requests  uint64  // number of requests in the two arms compared
	Nanos     float64 // mean with more tracepoints on minus mean with fewer
	Low, High float64 // 95 % interval (Welch's, normal)
}

// leastCompared is the minimum number of requests in an arm to compare it.
const leastCompared = 8

// OverheadOf compares the arms with the most tracepoints on to the arms with the fewest. It returns the zero value
// unless two arms have enough requests and differ in the number of tracepoints.
func OverheadOf(arms []ArmTimes) Overhead {
	byOn := make(map[int]ArmTimes)
	for _, a := range arms {
		if a.N > 0 {
			byOn[a.On] = pooled(byOn[a.On], a)
		}
	}
	var list []ArmTimes
	for _, a := range byOn {
		if a.N >= leastCompared {
			list = append(list, a)
		}
	}
	if len(list) < 2 {
		return Overhead{}
	}
	sorting.Slice(list, func(a, b ArmTimes) int { return cmp.Compare(a.On, b.On) })
	less, more := list[0], list[len(list)-1]
	o := Overhead{Requests: more.N + less.N, Nanos: more.Mean - less.Mean}
	se := math.Sqrt(more.Variance/float64(more.N) + less.Variance/float64(less.N))
	o.Low, o.High = o.Nanos-1.96*se, o.Nanos+1.96*se
	return o
}

// pooled merges the samples a and b.
func pooled(a, b ArmTimes) ArmTimes {
	n, m := float64(a.N), float64(b.N)
	mean := (n*a.Mean + m*b.Mean) / (n + m)
	squares := max(0, n-1)*a.Variance + (m-1)*b.Variance + n*(a.Mean-mean)*(a.Mean-mean) + m*(b.Mean-mean)*(b.Mean-mean)
	b.N, b.Mean, b.Variance = a.N+b.N, mean, squares/max(1, n+m-1)
	return b
}

// overheadFor returns the overhead on the requests of subject, or the zero value if unknown.
func overheadFor(subject Subject, times []ArmTimes) Overhead {
	var arms []ArmTimes
	for _, a := range times {
		if a.Subject == subject && isFinite(a.Mean) && isFinite(a.Variance) {
			arms = append(arms, a)
		}
	}
	return OverheadOf(arms)
}
