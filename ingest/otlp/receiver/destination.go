package receiver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/connlimit"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Destination is an [Intake] with its own limits, so that requests for one destination don't use up the slots and the
// memory for another.
type Destination struct {
	opts   Options
	intake Intake
	budget *budget
	bodies *bodies
}

// NewDestination returns a Destination that passes requests to intake. It uses only the limits on requests, Refuse and
// Log in opts. It returns an error if opts.MaxInFlightBytes is too small.
func NewDestination(intake Intake, opts Options) (*Destination, error) {
	opts = opts.withDefaults()
	if need := InFlight(opts.MaxRequestBytes); opts.MaxInFlightBytes < need {
		return nil, fmt.Errorf("OTLP requests of %d bytes need %d bytes in flight, but only %d are allowed: %w",
			opts.MaxRequestBytes, need, opts.MaxInFlightBytes, errInFlight)
	}
	d := &Destination{
		opts: opts, intake: intake,
		budget: &budget{maxRequests: opts.MaxRequests, maxBytes: opts.MaxInFlightBytes, slow: slowAfter},
	}
	d.bodies = newBodies(d.budget, opts.MaxRequestBytes, opts.Decoders)
	return d, nil
}

// Sender describes the sender of a request.
type Sender struct {
	Token string // bearer token; empty if there is no token
	From  string // address
	Scope string // tenant in X-Scope-OrgID; empty if there is no tenant

	Certificate *x509.Certificate // verified client certificate of the connection, or nil
}

// scopeHeader names the tenant of a request, as in Tempo and Loki.
const scopeHeader = "X-Scope-OrgID"

// senderOf returns the sender of a request. authorization is the Authorization header, and connection may be nil.
func senderOf(authorization, scope, from string, connection *tls.ConnectionState) Sender {
	s := Sender{From: from, Scope: scope, Certificate: connlimit.ClientCertificate(connection)}
	if scheme, token, _ := strings.Cut(authorization, " "); strings.EqualFold(scheme, "Bearer") {
		s.Token = strings.TrimSpace(token)
	}
	return s
}

// ErrUnauthorized refuses a request without a valid token.
var ErrUnauthorized = &refusal.Error{
	Reason: refusal.Unauthenticated,
	Detail: "a valid bearer token is needed",
	Header: map[string][]string{"Www-Authenticate": {"Bearer"}},
}

// destination returns the destination of a request from sender, or a refusal.
func (s *Server) destination(sender Sender) (*Destination, error) {
	if s.opts.Route == nil {
		return s.main, nil
	}
	to, err := s.opts.Route(sender)
	if to == nil {
		to = s.main
	}
	if err == nil {
		return to, nil
	}
	if _, ok := errors.AsType[*refusal.Error](err); ok {
		return nil, err
	}
	s.opts.Log.Error("the sender of a request cannot be identified", slog.Any("error", err))
	return nil, refuse(refusal.Failed, "internal error")
}

// enter admits a request before its body is read, or returns a refusal. For cut and the result, see [budget.enter].
func (d *Destination) enter(cut func()) (*place, error) {
	if refused := d.opts.Refuse(); refused != nil {
		return nil, overloaded(refused.Error(), refused.After)
	}
	p := d.budget.enter(cut)
	if p == nil {
		return nil, errTooMany
	}
	return p, nil
}

// take passes data, the body of a request, to the Intake and returns the spans that the Intake rejected, or a refusal.
// local is the local address of the connection.
func (d *Destination) take(ctx context.Context, local net.Addr, data []byte, format Format) (Rejected, error) {
	defer connlimit.Working(local)()
	began := time.Now()
	rejected, err := d.intake.Take(ctx, data, format)
	rejected.Why = refusal.Text(rejected.Why)
	if err == nil {
		d.budget.taken(time.Since(began))
		return rejected, nil
	}
	if refused, ok := errors.AsType[*refusal.Error](err); ok {
		return Rejected{}, overloaded(refused.Error(), refused.After)
	}
	if wrong, ok := errors.AsType[*ingest.RecordError](err); ok {
		return Rejected{}, refuse(refusal.Malformed, wrong.Error())
	}
	if ctx.Err() != nil {
		return Rejected{}, refuse(refusal.Canceled, "canceled")
	}
	d.opts.Log.LogAttrs(ctx, slog.LevelError, "the intake failed", slog.Any("error", err))
	return Rejected{}, refuse(refusal.Failed, "internal error")
}

// unread returns the refusal for a request whose body couldn't be read because of err.
func (d *Destination) unread(ctx context.Context, err error) *refusal.Error {
	if refused, ok := errors.AsType[*refusal.Error](err); ok {
		return refused
	}
	switch {
	case errors.Is(err, errCutOff), errors.Is(context.Cause(ctx), errCutOff):
		return errYielded
	case errors.Is(err, errOverBudget):
		return overloaded("too many bytes in flight", 0)
	case errors.Is(err, errTooLarge):
		return refuse(refusal.TooLarge,
			fmt.Sprintf("the request has more than %d bytes uncompressed", d.opts.MaxRequestBytes))
	case errors.Is(err, errCorrupt):
		return refuse(refusal.Malformed, "the body does not match its encoding, or needs a window over 8 MiB")
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed), errors.Is(context.Cause(ctx), errSlow):
		return refuse(refusal.TimedOut, errSlow.Error())
	case ctx.Err() != nil:
		return refuse(refusal.Canceled, "canceled")
	}
	return refuse(refusal.Malformed, "the body is incomplete")
}
