//go:build !linux

package throughput

import (
	"context"
	"errors"
	"io"
	"net/http"
)

type service struct {
	url    string
	body   []byte
	pid    uint32
	client *http.Client
}

var errLinux = errors.New("the benchmark needs Linux")

func startService(context.Context, []string) (*service, error) { return nil, errLinux }

func (*service) cpuTime() (int64, error) { return 0, errLinux }

func (*service) close() error { return nil }

// Serve returns an error, because the benchmark needs Linux.
func Serve(io.Reader, io.Writer) error { return errLinux }
