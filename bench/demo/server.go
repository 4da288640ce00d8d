package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// serverArguments are those of the server, whatever the fault. A demo is shorter than a day at work: epochs are, too.
func serverArguments(dataDir string, learning time.Duration) []string {
	return []string{
		"serve", "--data-dir", dataDir, "--log-format", "json",
		"--http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0", "--otlp-http", "off",
		"--learning", learning.String(), "--epoch", Epoch.String(), "--min-samples", "30", "--thresholds-cov", "0",
		"--assembly-settle", "1500ms", "--assembly-idle", "3s", "--journal-durability", "process", "--memory", "512MiB",
		"--keys", "shop.currency,shop.language,shop.tier,shop.items,service.instance.id,http.response.body.size",
	}
}

// Epoch is the time between two decisions of the server.
const Epoch = 3 * time.Second

// server is the Sibyl that watches the shop.
type server struct {
	*child
	api, otlp string // addresses
	client    *contract.ClientWithResponses
	stream    *http.Client
}

// listening is the line of the log that says where the server listens.
type listening struct {
	Msg  string `json:"msg"`
	API  string `json:"api"`
	OTLP string `json:"otlp_grpc"`
}

// startTimeout is how long a process may take until it listens.
const startTimeout = 30 * time.Second

// startServer starts the server and waits until it listens.
func startServer(ctx context.Context, o *Options, dir, dataDir string, environment []string) (*server, error) {
	c, err := start("server", o.Program, dir, environment, append([]string{AttendedCommand, dir, o.Sibyl}, serverArguments(dataDir, o.Learning)...)...)
	if err != nil {
		return nil, err
	}
	s := &server{child: c, stream: &http.Client{}}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the server does not listen"))
	defer cancel()
	for s.api == "" {
		if err := s.pause(ctx, 50*time.Millisecond); err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %s", err, c.lastWords())
			}
			_ = c.stop(0) // that it was killed says nothing
			return nil, err
		}
		s.find()
	}
	if s.client, err = contract.NewClientWithResponses(s.url()+"/api/v1", contract.WithHTTPClient(&http.Client{Timeout: startTimeout})); err != nil {
		return nil, errors.Join(err, c.stop(0))
	}
	return s, nil
}

func (s *server) url() string { return "http://" + s.api }

// pause waits, unless the server ended or ctx is done.
func (s *server) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.ended:
		return s.death()
	case <-time.After(d):
		return nil
	}
}

// find looks in the log for where the server listens.
func (s *server) find() {
	data, err := os.ReadFile(s.log.Name())
	if err != nil {
		return // it is tried again
	}
	for line := range strings.Lines(string(data)) {
		var l listening
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "listening" {
			s.api, s.otlp = l.API, l.OTLP
		}
	}
}

// learned waits until the server has learned what is normal.
func (s *server) learned(ctx context.Context) error {
	for {
		r, err := s.client.GetStatusWithResponse(ctx)
		if err == nil && r.JSON200 != nil && r.JSON200.Ready && !r.JSON200.Learning.Active {
			return nil
		}
		if err := s.pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// events calls hear with every event until ctx is done or the server ended. What was missed while there was no connection is sent again.
func (s *server) events(ctx context.Context, hear func(contract.Event)) error {
	last := ""
	for {
		_ = s.listen(ctx, &last, hear) // the server is asked again
		if err := s.pause(ctx, time.Second); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// listen reads one stream of events to its end.
func (s *server) listen(ctx context.Context, last *string, hear func(contract.Event)) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+"/api/v1/events", http.NoBody)
	if err != nil {
		return err
	}
	if *last != "" {
		r.Header.Set("Last-Event-ID", *last)
	}
	answer, err := s.stream.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "id":
			*last = value
		case "data":
			var e contract.Event
			if json.Unmarshal([]byte(value), &e) == nil && e.Type != "" {
				hear(e)
			}
		}
	}
	return lines.Err()
}
