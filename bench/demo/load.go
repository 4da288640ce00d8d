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

// The load is closed-loop: each customer sends a request, waits for the response, thinks, and repeats.
const (
	customers      = 16
	meanThinkTime  = 260 * time.Millisecond
	maxThinkTime   = 2 * time.Second
	requestTimeout = 30 * time.Second
)

// endpoints lists the paths of requests with their relative frequencies.
var endpoints = []struct {
	path   string
	weight int
}{
	{"/home", 5}, {"/search", 5}, {"/product", 5}, {"/cart", 4}, {"/checkout", 6}, {"/orders", 4}, {"/restock", 4},
}

// load counts the requests of customers.
type load struct {
	requests, failed atomic.Uint64
}

// run runs customers until ctx ends.
func (l *load) run(ctx context.Context, gateway string, seed uint64) {
	runCustomers(ctx, seed, func(_ uint64, client *http.Client, r *rand.Rand) {
		l.send(ctx, client, gateway, r)
		think(ctx, r, meanThinkTime)
	})
}

// think waits for the think time of a customer, or for the end of ctx.
func think(ctx context.Context, r *rand.Rand, mean time.Duration) {
	pause := min(time.Duration(r.ExpFloat64()*float64(mean)), maxThinkTime)
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// saturate runs customers without think time for d. It returns the latencies of successful requests in nanoseconds, in
// no particular order.
func (l *load) saturate(ctx context.Context, gateway string, seed uint64, d time.Duration) []float64 {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	latencies := make([][]float64, customers)
	runCustomers(ctx, seed, func(customer uint64, client *http.Client, r *rand.Rand) {
		began := time.Now()
		if l.send(ctx, client, gateway, r) {
			latencies[customer] = append(latencies[customer], float64(time.Since(began)))
		}
	})
	return slices.Concat(latencies...)
}

// runCustomers calls do repeatedly for each customer until ctx ends. Each customer has its own random generator.
func runCustomers(ctx context.Context, seed uint64, do func(customer uint64, client *http.Client, r *rand.Rand)) {
	client := &http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: customers}}
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

// send sends a random request and reports whether it succeeded.
func (l *load) send(ctx context.Context, client *http.Client, gateway string, r *rand.Rand) bool {
	q := shop.NewRequest(r)
	return l.post(ctx, client, "http://"+gateway+randomPath(r), &q)
}

// post sends a request and reports whether it succeeded.
func (l *load) post(ctx context.Context, client *http.Client, url string, q *shop.Request) bool {
	body, err := json.Marshal(q)
	if err != nil {
		panic(err) // q consists of numbers and strings
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		panic(err) // it is the URL of a listening address
	}
	request.Header.Set("Content-Type", "application/json")
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
	ok := err == nil && answer.StatusCode == http.StatusOK
	if ctx.Err() == nil && !ok {
		l.failed.Add(1)
	}
	return ok
}

// randomPath returns a random path, weighted by frequency.
func randomPath(r *rand.Rand) string {
	total := 0
	for _, e := range endpoints {
		total += e.weight
	}
	n := r.IntN(total)
	for _, e := range endpoints {
		if n -= e.weight; n < 0 {
			return e.path
		}
	}
	panic("unreachable: the weights add up to total")
}
