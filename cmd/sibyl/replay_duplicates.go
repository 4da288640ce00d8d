package main

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/client"
)

// duplicateWatch compares the counters of the service before and after it receives a replay. OTLP responses don't
// contain the number of duplicates among the accepted spans, because a service finds duplicates only later.
type duplicateWatch struct {
	api           *client.Client // nil if there is no API for the endpoint
	spans, copies int64          // counters before the replay
}

// countingDelay is the time within which a service has counted the spans that it acknowledged.
const countingDelay = 500 * time.Millisecond

// watchDuplicates reads the counters of the service that f.to belongs to. If the service's API doesn't answer, the
// result counts nothing.
func (p *process) watchDuplicates(ctx context.Context, f *replayFlags) duplicateWatch {
	server := cmp.Or(p.getenv(serverVariable), client.DefaultServer)
	if !sameHost(f.to, server) {
		return duplicateWatch{}
	}
	api, err := client.New(server, f.token)
	if err != nil {
		return duplicateWatch{}
	}
	before, _, err := api.Status(ctx)
	if err != nil {
		return duplicateWatch{}
	}
	return duplicateWatch{api, before.Ingest.Spans, before.Ingest.DuplicateSpans}
}

// sameHost reports whether the OTLP endpoint and the URL server name the same host.
func sameHost(endpoint, server string) bool {
	if _, rest, ok := strings.Cut(endpoint, "://"); ok {
		endpoint = rest
	}
	host, _, err := net.SplitHostPort(strings.TrimRight(endpoint, "/"))
	u, err2 := url.Parse(server)
	if err != nil || err2 != nil {
		return false
	}
	return host == u.Hostname() || isLocal("http://"+net.JoinHostPort(host, "0")) && isLocal(server)
}

// count returns the number of duplicates among the spans sent since w was created. It returns nil if the number is
// unknown, because sent is 0, the API doesn't answer or doesn't belong to the endpoint, or other senders have sent
// spans, too.
func (w *duplicateWatch) count(ctx context.Context, sent int64) *int64 {
	if w.api == nil || sent == 0 {
		return nil
	}
	select {
	case <-time.After(countingDelay):
	case <-ctx.Done():
		return nil
	}
	after, _, err := w.api.Status(ctx)
	if err != nil || after.Ingest.Spans-w.spans != sent {
		return nil
	}
	return new(after.Ingest.DuplicateSpans - w.copies)
}
