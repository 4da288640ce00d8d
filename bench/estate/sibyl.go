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

	"github.com/sibyl-trace/sibyl/api/contract"
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

// Incident is an incident that the service reported.
type Incident struct {
	ID       string    `json:"id"`
	Opened   int64     `json:"opened_unix_nano"`
	Closed   *int64    `json:"closed_unix_nano"` // nil while it is open
	Sentence string    `json:"sentence"`
	Suspects []Suspect `json:"suspects"` // ranked, at most three
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
	api, err := contract.NewClientWithResponses("http://"+s.api+"/api/v1", contract.WithHTTPClient(s.client))
	if err != nil {
		return nil, err
	}
	query := contract.ListIncidentsParams{Limit: new(1000), Muted: new(contract.ListIncidentsParamsMutedAll)}
	var all []Incident
	for {
		page, err := api.ListIncidentsWithResponse(ctx, &query)
		switch {
		case err != nil:
			return nil, fmt.Errorf("list incidents: %w", err)
		case page.StatusCode() == http.StatusNotFound:
			return nil, errNoIncidents
		case page.JSON200 == nil:
			return nil, fmt.Errorf("list incidents: %s", page.Status())
		}
		for i := range page.JSON200.Items {
			all = append(all, incidentOf(&page.JSON200.Items[i]))
		}
		if query.Cursor = page.JSON200.NextCursor; query.Cursor == nil {
			return all, nil
		}
	}
}

func incidentOf(x *contract.Incident) Incident {
	i := Incident{ID: x.ID, Opened: x.Opened.UnixNano(), Sentence: x.Sentence}
	if x.Closed != nil {
		i.Closed = new(x.Closed.UnixNano())
	}
	for k := range x.Suspects {
		s := Suspect{Service: x.Suspects[k].Service, Score: x.Suspects[k].Score}
		if operations := x.Suspects[k].Operations; len(operations) > 0 {
			s.Operation = operations[0].Operation
		}
		i.Suspects = append(i.Suspects, s)
	}
	return i
}
