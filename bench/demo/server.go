package demo

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
)

// serverArguments returns the arguments of the server: directory, log, addresses, and the strategy if it is not empty.
// All other settings are defaults.
func serverArguments(dataDir, http, strategy string) []string {
	list := []string{
		"serve", "--data-dir", dataDir, "--log-format", "json", "--http", http, "--otlp-grpc", freePort,
		"--otlp-http", "off",
	}
	if strategy != "" {
		list = append(list, "--strategy", strategy)
	}
	return list
}

// freePort is an address of loopback with a port that the system chooses.
const freePort = "127.0.0.1:0"

// ifFree returns address if nothing listens there, otherwise freePort.
func ifFree(ctx context.Context, address string) string {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil || l.Close() != nil {
		return freePort
	}
	return address
}

// server is the sibyl serve process of a demo.
type server struct {
	*child
	api, otlp string // addresses
	client    *client.Client
	stream    *http.Client
}

// listening is the log line with the addresses of the server.
type listening struct {
	Msg  string `json:"msg"`
	API  string `json:"api"`
	OTLP string `json:"otlp_grpc"`
}

// startTimeout bounds the time until the server listens.
const startTimeout = 30 * time.Second

// startServer starts the server and waits until it listens.
func startServer(ctx context.Context, o *Options, dir, dataDir string, environment []string) (*server, error) {
	c, err := start("server", o.Program, dir, environment, append([]string{SupervisedCommand, dir, o.Sibyl},
		serverArguments(dataDir, ifFree(ctx, cmp.Or(o.HTTP, freePort)), o.Strategy)...)...)
	if err != nil {
		return nil, err
	}
	s := &server{child: c, stream: &http.Client{}}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the server does not listen"))
	defer cancel()
	for s.api == "" {
		if err := s.pause(ctx, 50*time.Millisecond); err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %s", err, c.logTail())
			}
			_ = c.stop(0) // err is the reason, not the kill
			return nil, err
		}
		s.readAddresses()
	}
	if s.client, err = client.New(s.url(), ""); err != nil {
		_ = c.stop(0) // as above
		return nil, err
	}
	return s, nil
}

func (s *server) url() string { return "http://" + s.api }

// pause waits for d. It returns an error when the server exits or ctx ends.
func (s *server) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.exited:
		return s.exitError()
	case <-time.After(d):
		return nil
	}
}

// readAddresses sets the addresses if the log has them.
func (s *server) readAddresses() {
	data, err := os.ReadFile(s.log.Name())
	if err != nil {
		return // the caller retries
	}
	for line := range strings.Lines(string(data)) {
		var l listening
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "listening" {
			s.api, s.otlp = l.API, l.OTLP
		}
	}
}

// waitLearned waits for the end of the learning period.
func (s *server) waitLearned(ctx context.Context) error {
	for {
		status, _, err := s.client.Status(ctx)
		if err == nil && status.Ready && !status.Learning.Active {
			return nil
		}
		if err := s.pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// events calls handle with each event until ctx ends or the server exits. If the connection breaks, it resumes with the
// first event that it missed.
func (s *server) events(ctx context.Context, handle func(contract.Event)) error {
	last := ""
	for {
		_ = s.readEvents(ctx, &last, handle) // the next iteration retries
		if err := s.pause(ctx, time.Second); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// readEvents reads a stream of events, after the event *last, to its end.
func (s *server) readEvents(ctx context.Context, last *string, handle func(contract.Event)) error {
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
				handle(e)
			}
		}
	}
	return lines.Err()
}
