//go:build !linux

package shop

import (
	"context"
	"errors"
	"io"
)

var errNoNeighbour = errors.New("this fault needs Linux")

func (s *service) startNeighbour() error { return errNoNeighbour }

// Neighbour is the noisy neighbour of a service.
func Neighbour(context.Context, io.Reader, string) error { return errNoNeighbour }
