package listener

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/sibyl-trace/sibyl/internal/connlimit"
)

func config(address string) Config {
	log := slog.New(slog.DiscardHandler)
	return Config{Name: "the test", Address: address, Share: connlimit.NewShare(8, log), Log: log}
}

// both returns a listener of each kind.
func both(t *testing.T, handler http.Handler) map[string]*Listener {
	t.Helper()
	rpc, err := OpenGRPC(t.Context(), config("127.0.0.1:0"), grpc.NewServer)
	if err != nil {
		t.Fatal(err)
	}
	web, err := OpenHTTP(t.Context(), config("127.0.0.1:0"), &http.Server{Handler: handler})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*Listener{"gRPC": rpc, "HTTP": web}
}

// Drain and Close before Serve free the address, and Serve then returns nil.
func TestEndBeforeServe(t *testing.T) {
	for how, end := range map[string]func(*Listener) error{
		"drain": func(l *Listener) error { return l.Drain(t.Context()) },
		"close": (*Listener).Close,
	} {
		for kind, l := range both(t, nil) {
			if err := end(l); err != nil {
				t.Errorf("%s %s: %v", how, kind, err)
			}
			if err := l.Serve(); err != nil {
				t.Errorf("serve %s after %s: %v", kind, how, err)
			}
			again, err := net.Listen("tcp", l.Addr().String())
			if err != nil {
				t.Errorf("%s after %s: %v", kind, how, err)
				continue
			}
			_ = again.Close()
		}
	}
}

// An empty address disables the listener. The error for an address in use contains the address.
func TestOpen(t *testing.T) {
	off, err := OpenHTTP(t.Context(), config(""), &http.Server{})
	if off != nil || err != nil || off.Addr() != nil || off.Load() != (connlimit.Load{}) {
		t.Errorf("empty address: %v, %v", off, err)
	}
	for kind, l := range both(t, nil) {
		taken := config(l.Addr().String())
		_, webErr := OpenHTTP(t.Context(), taken, &http.Server{})
		_, rpcErr := OpenGRPC(t.Context(), taken, grpc.NewServer)
		for _, err := range []error{webErr, rpcErr} {
			if err == nil || !strings.Contains(err.Error(), "listen for the test") ||
				!strings.Contains(err.Error(), taken.Address) {
				t.Errorf("address of %s opened twice: %v", kind, err)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Serve returns an error if the socket fails.
func TestServeFails(t *testing.T) {
	for kind, l := range both(t, nil) {
		_ = l.Listener.Close()
		if err := l.Serve(); err == nil || !strings.Contains(err.Error(), "serve the test") {
			t.Errorf("%s: %v", kind, err)
		}
		_ = l.Close()
	}
}

// Drain waits for requests. When its context is done, it cancels them and returns an error.
func TestDrain(t *testing.T) {
	for _, answered := range []bool{true, false} {
		began, finish, canceled := make(chan struct{}), make(chan struct{}), make(chan struct{})
		l := both(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(began)
			select {
			case <-finish:
			case <-r.Context().Done():
				close(canceled)
			}
		}))["HTTP"]
		served := make(chan error, 1)
		go func() { served <- l.Serve() }()
		called := make(chan error, 1)
		go func() {
			r, err := http.Get("http://" + l.Addr().String()) //nolint:noctx // the listener ends it
			if err == nil {
				err = r.Body.Close()
			}
			called <- err
		}()
		<-began
		ctx, cancel := context.WithCancel(t.Context())
		drained := make(chan error, 1)
		go func() { drained <- l.Drain(ctx) }()
		select {
		case err := <-drained:
			t.Fatalf("drained before the request was answered: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		if answered {
			close(finish)
			if err := errors.Join(<-called, <-drained, <-served); err != nil {
				t.Error(err)
			}
		} else {
			cancel()
			<-canceled
			if err := <-drained; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "drain the test") {
				t.Errorf("drained: %v", err)
			}
			if err := <-called; err == nil {
				t.Error("the request was answered")
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
		cancel()
	}
}
