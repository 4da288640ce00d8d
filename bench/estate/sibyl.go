package estate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// sibyl is a sibyl serve process with shipping settings.
type sibyl struct {
	process   *process
	api, otlp string // addresses
	unjudged  bool   // its API has no incidents
	client    *http.Client
}

// sibylName is the name of the service's process.
const sibylName = "sibyl"

// startSibyl starts the service on free ports and waits until it listens. Its other settings are defaults.
func startSibyl(ctx context.Context, g *group, program, dataDir string, environment []string) (*sibyl, error) {
	p, err := g.start(command{
		name: sibylName, path: program, env: environment,
		args: []string{
			"serve", "--data-dir", dataDir, "--http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--log-format", "json",
		},
	})
	if err != nil {
		return nil, err
	}
	s := &sibyl{process: p, client: &http.Client{Timeout: 10 * time.Second}}
	return s, waitReady(ctx, p, func(context.Context) bool { return s.readAddresses() })
}

// readAddresses sets the addresses and reports whether the log has them.
func (s *sibyl) readAddresses() bool {
	data, err := os.ReadFile(s.process.log)
	if err != nil {
		return false // the caller retries
	}
	for line := range strings.Lines(string(data)) {
		var l struct {
			Msg  string `json:"msg"`
			API  string `json:"api"`
			OTLP string `json:"otlp_http"`
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "listening" {
			s.api, s.otlp = l.API, l.OTLP
		}
	}
	return s.otlp != ""
}

// Incident is an incident of the API.
type Incident struct {
	ID       string    `json:"id"`
	Opened   int64     `json:"opened_unix_nano"`
	Closed   *int64    `json:"closed_unix_nano"` // nil while it is open
	Sentence string    `json:"sentence"`
	Suspects []Suspect `json:"suspects"` // ranked
}

// Suspect is a suspect of an incident.
type Suspect struct {
	Service   string  `json:"service"`
	Operation string  `json:"operation"`
	Score     float64 `json:"score"`
}

// errNoIncidents is the error of a service whose API has no incidents.
var errNoIncidents = errors.New("this sibyl has no /api/v1/incidents")

// incidents returns all incidents, open and closed.
func (s *sibyl) incidents(ctx context.Context) ([]Incident, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.api+"/api/v1/incidents", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, errNoIncidents
	default:
		return nil, fmt.Errorf("list incidents: %s", answer.Status)
	}
	var list struct {
		Incidents []Incident `json:"incidents"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("decode incidents: %w", err)
	}
	return list.Incidents, nil
}
