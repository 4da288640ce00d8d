package demo

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
)

// agentJar is the name of Sibyl's agent for the JVM in the folder of a demo.
const agentJar = "sibyl-agent.jar"

// java returns the setup of the service in Java, which calls a service that has already started. The agent comes from
// the sibyl program.
func (d *demo) java(environment []string) (*shop.Java, error) {
	jar, err := d.writeAgent(environment)
	if err != nil {
		return nil, err
	}
	return &shop.Java{
		JVM:           d.Java.JVM,
		Service:       d.Java.Service,
		OpenTelemetry: d.Java.OpenTelemetry,
		Agent:         jar,
		Search:        "http://" + d.peers["search"][0],
	}, nil
}

// writeAgent writes Sibyl's agent for the JVM into the folder of the demo and returns its path.
func (d *demo) writeAgent(environment []string) (string, error) {
	jar := filepath.Join(d.dir, agentJar)
	c := exec.Command(d.Sibyl, "agent", "jvm", "--write", jar) //nolint:noctx // it writes a file
	c.Env = environment
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("write the agent for the JVM: %w: %s", err, out)
	}
	return jar, nil
}

// offered returns the largest number of tracepoints that an agent of the service offers, or 0 if it has no agents.
func (d *demo) offered(ctx context.Context, service string) int {
	n := 0
	for _, a := range d.server.agents(ctx, service) {
		n = max(n, a.Catalogue)
	}
	return n
}

// agents returns the agents of a service. If the server does not answer, it returns nil.
func (s *server) agents(ctx context.Context, service string) (found []contract.Agent) {
	list, err := s.client.Agents(ctx, contract.ListAgentsParams{}, 0)
	if err != nil {
		return nil
	}
	for _, a := range list.Items {
		if a.Resource["service.name"] == service {
			found = append(found, a)
		}
	}
	return found
}
