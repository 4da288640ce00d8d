package estate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// toxiproxy is a client of Toxiproxy's HTTP API.
type toxiproxy struct {
	url    string
	client *http.Client
}

func newToxiproxy(address string) *toxiproxy {
	return &toxiproxy{url: "http://" + address, client: &http.Client{Timeout: 5 * time.Second}}
}

// toxic is a disturbance of a link.
type toxic struct {
	Name       string         `json:"name"`
	Type       string         `json:"type"`
	Stream     string         `json:"stream"`
	Toxicity   float64        `json:"toxicity"` // probability, for each connection
	Attributes map[string]any `json:"attributes"`
}

// open creates a link that listens on the address listen and forwards to upstream.
func (t *toxiproxy) open(ctx context.Context, name, listen, upstream string) error {
	return t.send(ctx, http.MethodPost, "/proxies",
		map[string]any{"name": name, "listen": listen, "upstream": upstream, "enabled": true})
}

// disturb adds a toxic to a link.
func (t *toxiproxy) disturb(ctx context.Context, link string, x toxic) error {
	return t.send(ctx, http.MethodPost, "/proxies/"+link+"/toxics", x)
}

// heal removes a toxic from a link.
func (t *toxiproxy) heal(ctx context.Context, link, name string) error {
	return t.send(ctx, http.MethodDelete, "/proxies/"+link+"/toxics/"+name, nil)
}

func (t *toxiproxy) send(ctx context.Context, method, path string, body any) error {
	return sendJSON(ctx, t.client, method, t.url+path, body)
}

// sendJSON sends a request with body as JSON, or without a body if that is nil. It returns an error unless the status
// is 2xx.
func sendJSON(ctx context.Context, client *http.Client, method, url string, body any) error {
	var content io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	untraced(r)
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, tail(text))
	}
	return nil
}

// untraced asks instrumented programs to record no spans of a request, so that the traces do not show the benchmark.
func untraced(r *http.Request) {
	r.Header.Set("traceparent", "00-0000000000000000000000000000e57a-000000000000e57a-00")
}
