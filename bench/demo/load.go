package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/bench/demo/shop"
)

// The load is closed-loop: so many customers, each of whom asks, waits for the answer, thinks, and asks again.
const (
	customers    = 16
	meanThinking = 260 * time.Millisecond
	mostThinking = 2 * time.Second
	patience     = 30 * time.Second // of a customer with a request
)

// wish is a request that customers make, with how often.
type wish struct {
	path   string
	weight int
}

var wishes = []wish{
	{"/home", 5}, {"/search", 5}, {"/product", 5}, {"/cart", 4}, {"/checkout", 6}, {"/orders", 4}, {"/restock", 4},
}

// load is what customers did.
type load struct {
	requests, failed atomic.Uint64
}

// run has customers until ctx is done.
func (l *load) run(ctx context.Context, gateway string, seed uint64) {
	crowd(ctx, seed, func(_ uint64, client *http.Client, r *rand.Rand) {
		l.ask(ctx, client, gateway, r)
		pause := min(time.Duration(r.ExpFloat64()*float64(meanThinking)), mostThinking)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	})
}

// rush has customers who do not think, for a time. It returns how long the requests took that were answered within that, in no order.
func (l *load) rush(ctx context.Context, gateway string, seed uint64, lasts time.Duration) []time.Duration {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	took := make([][]time.Duration, customers)
	crowd(ctx, seed, func(customer uint64, client *http.Client, r *rand.Rand) {
		began := time.Now()
		if l.ask(ctx, client, gateway, r) {
			took[customer] = append(took[customer], time.Since(began))
		}
	})
	return slices.Concat(took...)
}

// crowd has every customer do something again and again until ctx is done, with randomness of his own.
func crowd(ctx context.Context, seed uint64, do func(customer uint64, client *http.Client, r *rand.Rand)) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: customers}}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range uint64(customers) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, i))
			for ctx.Err() == nil {
				do(i, client, r)
			}
		})
	}
	all.Wait()
}

// ask makes one request, and reports whether it was answered as it should be.
func (l *load) ask(ctx context.Context, client *http.Client, gateway string, r *rand.Rand) bool {
	q := shop.NewRequest(r)
	body, err := json.Marshal(&q)
	if err != nil {
		panic(err) // it holds numbers and words
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+gateway+next(r), bytes.NewReader(body))
	if err != nil {
		panic(err) // the address was listened on
	}
	l.requests.Add(1)
	answer, err := client.Do(request)
	if err != nil {
		if ctx.Err() == nil {
			l.failed.Add(1)
		}
		return false
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	_, err = io.Copy(io.Discard, answer.Body)
	fine := err == nil && answer.StatusCode == http.StatusOK
	if ctx.Err() == nil && !fine {
		l.failed.Add(1)
	}
	return fine
}

// next returns the path of the next request.
func next(r *rand.Rand) string {
	total := 0
	for _, w := range wishes {
		total += w.weight
	}
	n := r.IntN(total)
	for _, w := range wishes {
		if n -= w.weight; n < 0 {
			return w.path
		}
	}
	panic("the weights do not add up")
}
