package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/connlimit"
	"github.com/sibyl-trace/sibyl/internal/listener"
)

// tlsFiles converts t to the type that listeners take.
func tlsFiles(t config.TLS, log *slog.Logger) connlimit.TLS {
	return connlimit.TLS{CertFile: t.Cert, KeyFile: t.Key, ClientCAFile: t.ClientCA, Log: log}
}

// listenerConfig returns the configuration of a listener at address. It reads the TLS files unless address is empty.
func listenerConfig(
	name, address string, share *connlimit.Share, files config.TLS, log *slog.Logger,
) (listener.Config, error) {
	c := listener.Config{Name: name, Address: address, Share: share, Log: log}
	if address == "" {
		return c, nil
	}
	var err error
	if c.TLS, err = tlsFiles(files, log).Config(); err != nil {
		return c, fmt.Errorf("encrypt %s: %w", name, err)
	}
	return c, nil
}

// openHTTP listens on address for server. It returns nil if address is empty.
func openHTTP(
	ctx context.Context, name, address string,
	share *connlimit.Share, files config.TLS, log *slog.Logger, server *http.Server,
) (*listener.Listener, error) {
	c, err := listenerConfig(name, address, share, files, log)
	if err != nil {
		return nil, err
	}
	return listener.OpenHTTP(ctx, c, server)
}

// Listen listens on all configured addresses. If it fails, it closes the listeners that it has opened.
func (s *Server) Listen(ctx context.Context) error {
	err := s.listen(ctx)
	if err != nil {
		s.receiver.Close()
		for _, l := range s.listeners() {
			_ = l.Close() // the caller has the relevant error
		}
	}
	return err
}

func (s *Server) listen(ctx context.Context) error {
	if err := s.receiver.Listen(ctx); err != nil {
		return err
	}
	if err := s.main.outbound.listen(ctx, s.files.others); err != nil {
		return err
	}
	agents := connlimit.NewShare(s.files.agents, s.log) // agents connect to both addresses
	web := &http.Server{Handler: s.front()}
	if s.config.API.TLS.Cert != "" {
		web.Handler = onlyEncrypted(web.Handler)
	}
	web.RegisterOnShutdown(func() {
		for _, t := range s.all() {
			t.api.Close()
		}
	})
	var err error
	if s.http, err = openHTTP(ctx, "the API", s.config.HTTP, agents, s.config.API.TLS, s.log, web); err != nil {
		return err
	}
	s.agents, err = openHTTP(ctx, "OpAMP", s.config.OpAMP, agents, s.config.API.TLS, s.log, &http.Server{
		Handler:     http.HandlerFunc(s.serveOpAMP),
		ConnContext: s.main.opamp.ConnContext(), // the same for all tenants
	})
	return err
}

// onlyEncrypted makes browsers use TLS for this host for a year, because a first request without TLS could be
// intercepted.
func onlyEncrypted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		next.ServeHTTP(w, r)
	})
}

// listeners returns the open listeners, except for the receivers'.
func (s *Server) listeners() []*listener.Listener {
	var open []*listener.Listener
	o := s.main.outbound
	for _, l := range []*listener.Listener{s.http, s.agents, o.samplingHTTP, o.samplingGRPC} {
		if l != nil {
			open = append(open, l)
		}
	}
	return open
}

// Addresses holds the addresses that the service listens on. The address of a disabled listener is nil.
type Addresses struct{ API, GRPC, HTTP, OpAMP, SamplingHTTP, SamplingGRPC net.Addr }

// Addresses returns the addresses that the service listens on.
func (s *Server) Addresses() Addresses {
	return Addresses{
		API: s.http.Addr(), GRPC: s.receiver.GRPCAddr(), HTTP: s.receiver.HTTPAddr(), OpAMP: s.agents.Addr(),
		SamplingHTTP: s.main.outbound.samplingHTTP.Addr(), SamplingGRPC: s.main.outbound.samplingGRPC.Addr(),
	}
}
