// Package sizegen makes transfers for judging size models: sizes, latencies, and what was wrong with each. It decides how
// the world behaves and knows nothing of the models. The same options and seed give the same transfers.
package sizegen

import (
	"math"
	"math/rand/v2"
	"time"
)

// Class says what happened to a transfer.
type Class int

// What may happen to a transfer.
const (
	Normal Class = iota
	Delayed
	TimedOut
)

// Transfer is one message over the network.
type Transfer struct {
	Size    int // bytes, above 0
	Latency time.Duration
	Class   Class
}

// Options describe the network and what goes wrong in it.
type Options struct {
	Segment     int           // bytes of payload per packet
	MaxSegments float64       // sizes are log-uniform from 64 bytes to this many segments
	Base        time.Duration // latency of an empty transfer
	PerByte     time.Duration // serialization, times size
	PerSegment  time.Duration // each packet beyond the first
	Jitter      float64       // standard deviation of the logarithm of the noise, which multiplies the latency
	Floor       time.Duration // standard deviation of the noise beside it
	Delayed     float64       // part of the transfers that are delayed
	TimedOut    float64       // part of the transfers that time out
	Timeout     time.Duration
	RTO         time.Duration // retransmission time-out: doubles with every further loss
}

// Draw returns options for a network as one may meet it: of ordinary or jumbo packets, near or far, with 2–8 % of the
// transfers delayed and 0.5–2 % timed out. Transfers have at most maxSegments packets.
func Draw(seed uint64, maxSegments float64) Options {
	r := rand.New(rand.NewPCG(seed, 0x512e))
	uniform := func(lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }
	return Options{
		Segment:     []int{1460, 1460, 1448, 1500, 8960}[r.IntN(5)],
		MaxSegments: maxSegments,
		Base:        time.Duration(uniform(0.3e6, 5e6)),
		PerByte:     time.Duration(uniform(1, 80)),
		PerSegment:  time.Duration(uniform(0.02e6, 0.5e6)),
		Jitter:      uniform(0.01, 0.06),
		Floor:       time.Duration(uniform(0.01e6, 0.1e6)),
		Delayed:     uniform(0.02, 0.08),
		TimedOut:    uniform(0.005, 0.02),
		Timeout:     3 * time.Second,
		RTO:         200 * time.Millisecond,
	}
}

// Generate returns n transfers. Two in three delayed ones lost packets and waited for one retransmission time-out or,
// after another loss, for more; the others queued and took 1.3 to 10 times as long, mostly little.
func Generate(seed uint64, n int, o Options) []Transfer {
	r := rand.New(rand.NewPCG(seed, 0x517e))
	out := make([]Transfer, n)
	for i := range out {
		size := int(64 * math.Exp(r.Float64()*math.Log(o.MaxSegments*float64(o.Segment)/64)))
		latency := float64(o.Base) + float64(o.PerByte)*float64(size) + float64(o.PerSegment)*float64(size/o.Segment)
		noisy := latency*math.Exp(o.Jitter*r.NormFloat64()) + float64(o.Floor)*r.NormFloat64()
		out[i] = Transfer{Size: size, Latency: time.Duration(max(noisy, latency/4))}
		switch u := r.Float64(); {
		case u < o.TimedOut:
			out[i].Class = TimedOut
			out[i].Latency = o.Timeout + time.Duration(r.ExpFloat64()*float64(5*time.Millisecond))
		case u < o.TimedOut+o.Delayed:
			out[i].Class = Delayed
			out[i].Latency = delay(r, o, out[i].Latency)
		}
	}
	return out
}

func delay(r *rand.Rand, o Options, latency time.Duration) time.Duration {
	if r.IntN(3) == 0 {
		return min(time.Duration(1.3*math.Pow(10/1.3, r.Float64())*float64(latency)), o.Timeout*9/10)
	}
	wait := o.RTO
	for loss := o.RTO * 2; r.IntN(6) == 0 && wait+loss < o.Timeout*8/10; loss *= 2 {
		wait += loss
	}
	return min(latency+wait+time.Duration(r.Float64()*20e6), o.Timeout*9/10)
}
