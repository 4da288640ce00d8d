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
	return Config{Name: "nobody", Address: address, Share: connlimit.NewShare(8, log), Log: log}
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

// A listener that is drained or closed before it is served has nothing to serve, and its address is free again.
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

// An address that is empty is off, and one that is taken is named in the error.
func TestOpen(t *testing.T) {
	off, err := OpenHTTP(t.Context(), config(""), &http.Server{})
	if off != nil || err != nil || off.Addr() != nil || off.Load() != (connlimit.Load{}) {
		t.Errorf("off: %v, %v", off, err)
	}
	for kind, l := range both(t, nil) {
		taken := config(l.Addr().String())
		_, webErr := OpenHTTP(t.Context(), taken, &http.Server{})
		_, rpcErr := OpenGRPC(t.Context(), taken, grpc.NewServer)
		for _, err := range []error{webErr, rpcErr} {
			if err == nil || !strings.Contains(err.Error(), "listen for nobody") || !strings.Contains(err.Error(), taken.Address) {
				t.Errorf("the address of %s again: %v", kind, err)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A listener whose socket fails says so.
func TestServeFails(t *testing.T) {
	for kind, l := range both(t, nil) {
		_ = l.Listener.Close()
		if err := l.Serve(); err == nil || !strings.Contains(err.Error(), "serve nobody") {
			t.Errorf("%s: %v", kind, err)
		}
		_ = l.Close()
	}
}

// Drain waits for a request, and when time is up it cancels the request and says so.
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
		asked := make(chan error, 1)
		go func() {
			r, err := http.Get("http://" + l.Addr().String()) //nolint:noctx // the listener ends it
			if err == nil {
				err = r.Body.Close()
			}
			asked <- err
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
			if err := errors.Join(<-asked, <-drained, <-served); err != nil {
				t.Error(err)
			}
		} else {
			cancel()
			<-canceled
			if err := <-drained; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "drain nobody") {
				t.Errorf("drained: %v", err)
			}
			if err := <-asked; err == nil {
				t.Error("the request was answered")
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
		cancel()
	}
}
