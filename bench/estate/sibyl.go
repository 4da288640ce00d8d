package estate

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
)

// sibyl is a sibyl serve process with shipping settings.
type sibyl struct {
	process   *process
	api, otlp string // addresses
}

// sibylName is the name of the service's process.
const sibylName = "sibyl"

// startSibyl starts the service on free ports and waits until it listens. Its other settings are defaults.
func startSibyl(ctx context.Context, g *group, program, dataDir string, environment []string) (*sibyl, error) {
	p, err := g.start(command{
		name: sibylName, path: program, env: environment,
		args: []string{
			"serve", "--data-dir", dataDir, "--http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0",
			"--otlp-http", "127.0.0.1:0", "--log-format", "json",
		},
	})
	if err != nil {
		return nil, err
	}
	s := &sibyl{process: p}
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

// incidents returns all incidents, open and closed.
func (s *sibyl) incidents(ctx context.Context) ([]Incident, error) {
	api, err := client.New("http://"+s.api, "")
	if err != nil {
		return nil, err
	}
	list, err := api.Incidents(ctx, contract.ListIncidentsParams{Muted: new(contract.ListIncidentsParamsMutedAll)}, 0)
	if err != nil {
		return nil, err
	}
	var all []Incident
	for i := range list.Items {
		all = append(all, incidentOf(&list.Items[i]))
	}
	return all, nil
}

// service returns the state of a service in the API, with the reason and the figures now and usually.
func (s *sibyl) service(ctx context.Context, name string) (string, error) {
	api, err := client.New("http://"+s.api, "")
	if err != nil {
		return "", err
	}
	page, err := client.Get[contract.ServiceList](ctx, api, contract.ListServicesParams{
		Q:     &name,
		Limit: new(1000),
	}, "services")
	if err != nil {
		return "", err
	}
	for i := range page.Items {
		if x := &page.Items[i]; x.Service == name {
			return strings.TrimSuffix(string(x.State)+": "+x.Reason, ": "), nil
		}
	}
	return "not known to sibyl", nil
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
