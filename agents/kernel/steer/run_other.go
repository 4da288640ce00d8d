//go:build !linux || !(amd64 || arm64)

package steer

import (
	"context"

	"github.com/sibyl-trace/sibyl/agents/kernel"
)

// ServiceName is the service name that the agent itself registers with.
const ServiceName = "sibyl-agent-kernel"

// Run returns the error of [kernel.Check].
func Run(context.Context, Settings) error {
	_, err := kernel.Check()
	return err
}
