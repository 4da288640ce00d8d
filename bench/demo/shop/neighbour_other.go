//go:build !linux

package shop

import (
	"context"
	"errors"
	"io"
)

var errNoNeighbour = errors.New("this fault needs Linux")

func (s *service) startNeighbour() error { return errNoNeighbour }

// Disturb returns an error, because the noisy neighbour is only implemented for Linux.
func Disturb(context.Context, io.Reader, string) error { return errNoNeighbour }
