package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/connlimit"
)

// files is how many files each part of the process may have open.
type files struct {
	database int // each of the two
	agents   int // connections of agents, and of whoever asks the API
	others   int // connections to each other address; senders keep few
}

// How files are shared. Whoever opens as many connections as he can must not keep the databases from opening their files, nor agents, of which
// each waits in a connection of its own, those who send traces from sending them.
const (
	mostReserved   = 2048   // files of databases and what else the process needs; at most half of all
	needed         = 48     // of these are not the databases'
	mostOthers     = 1024   // connections to an address where no agents wait
	othersShare    = 16     // one in so many connections, if that is fewer
	otherAddresses = 4      // of the receivers and of remote sampling
	mostAgents     = 24_000 // as memory is bounded, too; control takes fewer agents
)

// ownFiles shares out the files that the process may open. Go has raised that to what it may be raised to.
func ownFiles() files {
	const usual = 1024
	var all unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &all); err != nil {
		all.Cur = usual
	}
	return shareFiles(all.Cur)
}

// shareFiles shares out so many files.
func shareFiles(all uint64) files {
	all = min(all, mostReserved+mostAgents+otherAddresses*mostOthers)
	reserved := min(all/2, mostReserved)
	others := min((all-reserved)/othersShare, mostOthers)
	return files{
		database: int(max(reserved, needed)-needed) / 2,
		agents:   int(all - reserved - otherAddresses*others),
		others:   int(others),
	}
}

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 32 << 10
)

// door is an address that is open, and what serves it. A nil door is one that is off.
type door struct {
	listener *connlimit.Listener
	serve    func() error // returns nil after drain
	drain    func(context.Context) error
}

// frame is how a door is made.
type frame struct {
	what    string // for whom
	address string // empty: off
	share   *connlimit.Share
	tls     config.TLS
	log     *slog.Logger
}

// open opens the address. How it is to be encrypted is nil for clear text.
func (f *frame) open(ctx context.Context) (*connlimit.Listener, *tls.Config, error) {
	encrypted, err := encryption(f.tls, f.log).Config()
	if err != nil {
		return nil, nil, f.failed("encrypt", err)
	}
	l, err := connlimit.Open(ctx, f.address, f.share)
	return l, encrypted, f.failed("listen", err)
}

// failed says what could not be done for whom; nil if that is no error.
func (f *frame) failed(what string, err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) { // the latter: before it served
		return nil
	}
	return fmt.Errorf("%s for %s: %w", what, f.what, err)
}

// openHTTP opens a door that server, to which it gives the limits of all, will serve.
func openHTTP(ctx context.Context, f frame, server *http.Server) (*door, error) {
	if f.address == "" {
		return nil, nil
	}
	l, encrypted, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	var clear net.Listener = l
	if encrypted != nil {
		clear = tls.NewListener(l, encrypted)
	}
	server.ReadHeaderTimeout, server.IdleTimeout, server.MaxHeaderBytes = headerTimeout, idleTimeout, maxHeader
	server.ErrorLog, server.ConnState = slog.NewLogLogger(f.log.Handler(), slog.LevelDebug), l.State
	return &door{
		listener: l,
		serve:    func() error { return f.failed("serve", server.Serve(clear)) },
		drain: func(ctx context.Context) error {
			if err := server.Shutdown(ctx); err != nil {
				return errors.Join(f.failed("drain", err), server.Close()) // cuts off what is not answered
			}
			return nil
		},
	}, nil
}

// openGRPC opens a door that what newServer returns will serve.
func openGRPC(ctx context.Context, f frame, newServer func(...grpc.ServerOption) *grpc.Server) (*door, error) {
	if f.address == "" {
		return nil, nil
	}
	l, encrypted, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	var options []grpc.ServerOption
	if encrypted != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(encrypted)))
	}
	server := newServer(options...)
	return &door{
		listener: l,
		serve:    func() error { return f.failed("serve", server.Serve(l)) },
		drain:    func(context.Context) error { server.Stop(); return nil }, // whoever asks for rates asks again
	}, nil
}

// addr returns what is really listened on; nil if nothing is.
func (d *door) addr() net.Addr {
	if d == nil {
		return nil
	}
	return d.listener.Addr()
}

// load returns how many connections there are.
func (d *door) load() connlimit.Load {
	if d == nil {
		return connlimit.Load{}
	}
	return d.listener.Load()
}
