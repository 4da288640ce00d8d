//go:build !linux

package shop

import (
	"context"
	"errors"
	"io"
)

var errNoNeighbour = errors.New("this fault needs Linux")

func (s *service) startNeighbour() error { return errNoNeighbour }

// Disturb is the noisy neighbour of a service.
func Disturb(context.Context, io.Reader, string) error { return errNoNeighbour }
