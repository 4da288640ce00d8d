// Package opamp lets agents that speak OpAMP (Open Agent Management Protocol) take plans, over WebSocket or plain HTTP, with its core
// messages only:
//
//   - The catalogue is the file [protocol.ConfigCatalogue] of the agent's effective configuration: a [Catalogue] as JSON.
//   - The plan is the file [protocol.ConfigPlan] of the remote configuration: a [protocol.Plan] as JSON. Its hash is the config_hash.
//   - What became of it is the RemoteConfigStatus; what became of single tracepoints, the ComponentHealth of components called like them.
//   - The resource is the agent description.
//   - Every message of the server renews the lease. Over WebSocket one is sent at least every third of it; over HTTP the agent asks as often.
//
// What hits cost cannot be told in this way; estimates stand for it.
package opamp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/open-telemetry/opamp-go/server"
	"github.com/open-telemetry/opamp-go/server/types"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Catalogue is what an agent can switch on, all of it.
type Catalogue struct {
	protocol.Catalogue
	Tracepoints []protocol.Tracepoint `json:"tracepoints"` // ascending by ID
}

// Path is where agents connect.
const Path = "/v1/opamp"

// Server answers agents. It is safe for concurrent use.
type Server struct {
	plane    *control.Plane
	identify func(*http.Request) (string, error)
	log      *slog.Logger
	handle   server.HTTPHandlerFunc
	context  server.ConnContext
	closing  context.Context //nolint:containedctx // its end is that of all connections
	close    context.CancelFunc

	mu   sync.Mutex     // orders Add before Wait: a connection may open while the server closes
	open sync.WaitGroup // sockets that follow plans; Add is guarded by mu
}

// New returns a Server of a plane. Identify returns the token that vouches for the sender of a request, or a [*refusal.Error].
func New(plane *control.Plane, identify func(*http.Request) (string, error), log *slog.Logger) (*Server, error) {
	s := &Server{plane: plane, identify: identify, log: log}
	s.closing, s.close = context.WithCancel(context.Background()) //nolint:forbidigo // Close ends it
	var err error
	s.handle, s.context, err = server.New(quiet{log}).Attach(server.Settings{
		Callbacks: types.Callbacks{OnConnecting: s.connecting}, // without compression: nothing bounds what a compressed message of a socket becomes
	})
	if err != nil {
		return nil, fmt.Errorf("attach OpAMP: %w", err)
	}
	return s, nil
}

// quiet logs what the library says, for whoever looks for it: mostly that agents went away.
type quiet struct{ log *slog.Logger }

// Debugf implements the logger of the library.
func (q quiet) Debugf(ctx context.Context, format string, v ...any) {
	q.log.LogAttrs(ctx, slog.LevelDebug, "opamp", slog.String("what", fmt.Sprintf(format, v...)))
}

// Errorf implements the logger of the library.
func (q quiet) Errorf(ctx context.Context, format string, v ...any) { q.Debugf(ctx, format, v...) }

// ConnContext is that of the http.Server which serves s.
func (s *Server) ConnContext() server.ConnContext { return s.context }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != Path {
		refused := refusal.New(refusal.NotFound, "nothing is here", "agents that speak OpAMP connect to "+Path)
		refused.Write(w, refused.Problem())
		return
	}
	if r.Header.Get("Content-Type") == "application/x-protobuf" {
		body, done, err := s.plane.Body(w, r, MaxMessage)
		if err != nil {
			s.unreadable(w, r, err)
			return
		}
		defer done()
		r.Header.Del("Content-Encoding")
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	s.handle(hijacker{w, s.plane}, r)
}

// later is when an agent that cannot be served now is to try again.
const later = 5 * time.Second

// unreadable refuses a request whose body was not read because of err.
func (s *Server) unreadable(w http.ResponseWriter, r *http.Request, err error) {
	refused := s.refusalOf(r.Context(), err)
	if errors.Is(refused, refusal.Overloaded) {
		refused = refused.Later(later)
	}
	refused.Write(w, refused.Problem())
}

// refusalOf returns the refusal that err holds. Any other error goes to the log only.
func (s *Server) refusalOf(ctx context.Context, err error) *refusal.Error {
	if refused, ok := errors.AsType[*refusal.Error](err); ok {
		return refused
	}
	s.log.LogAttrs(ctx, slog.LevelError, "a request of an OpAMP agent failed", slog.Any("error", err))
	return refusal.Failure()
}

// Close ends all connections.
func (s *Server) Close() {
	s.mu.Lock()
	s.close()
	s.mu.Unlock()
	s.open.Wait()
}

// admit counts a socket as open, until s.open.Done, unless the server closes.
func (s *Server) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return false
	}
	s.open.Add(1)
	return true
}

func (s *Server) connecting(r *http.Request) types.ConnectionResponse {
	principal, err := s.identify(r)
	if err != nil {
		return types.ConnectionResponse{HTTPStatusCode: s.refusalOf(r.Context(), err).Code()}
	}
	a := &agent{Server: s, caller: control.Caller{Principal: principal, Transport: "opamp", Session: "http"}}
	if r.Header.Get("Upgrade") != "" {
		a.caller.Session = rand.Text() // a connection is a session
		a.socket = true
	}
	return types.ConnectionResponse{Accept: true, ConnectionCallbacks: types.ConnectionCallbacks{
		OnMessage: a.message, OnReadMessageError: a.unread, OnConnectionClose: a.closed,
	}}
}

// agent is one connection of an agent. Its methods are called one after the other.
type agent struct {
	*Server
	caller control.Caller
	socket bool
	stop   context.CancelFunc // ends what writes to the socket; nil: nothing does
}

// name notes which agent the other end says that it is. On a connection there is one at a time: an agent that calls itself otherwise from now
// on is followed anew, and the one that it was is gone.
func (a *agent) name(id string) {
	if a.stop != nil && id != a.caller.ID {
		a.stop()
		a.stop = nil
		a.plane.Leave(a.caller)
	}
	a.caller.ID = id
}

const capabilities = uint64(protobufs.ServerCapabilities_ServerCapabilities_AcceptsStatus | protobufs.ServerCapabilities_ServerCapabilities_OffersRemoteConfig |
	protobufs.ServerCapabilities_ServerCapabilities_AcceptsEffectiveConfig)

// message takes a message and returns the answer.
func (a *agent) message(_ context.Context, conn types.Connection, m *protobufs.AgentToServer) *protobufs.ServerToAgent {
	defer taken(conn)
	answer := &protobufs.ServerToAgent{InstanceUid: m.InstanceUid, Capabilities: capabilities}
	a.name(hex.EncodeToString(m.InstanceUid))
	if len(m.InstanceUid) != 16 {
		return refused(answer, protobufs.ServerErrorResponseType_ServerErrorResponseType_BadRequest, "instance_uid: want 16 bytes")
	}
	if m.AgentDisconnect != nil {
		a.plane.Leave(a.caller)
		return answer
	}
	err := a.register(m)
	if status := m.RemoteConfigStatus; err == nil && status != nil {
		switch status.Status {
		case protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED:
			err = a.plane.Applied(a.caller, string(status.LastRemoteConfigHash), "")
		case protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED:
			err = a.plane.Applied(a.caller, string(status.LastRemoteConfigHash), "it says: "+protocol.Printable(status.ErrorMessage, protocol.MaxReason))
		case protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLYING, protobufs.RemoteConfigStatuses_RemoteConfigStatuses_UNSET:
		}
	}
	if err == nil && m.Health != nil {
		err = a.became(m.Health)
	}
	var plan control.PlanAnswer
	if err == nil {
		plan, err = a.plane.Plan(a.caller, a.plane.Has(a.caller))
	}
	if err != nil {
		return a.explain(answer, err)
	}
	if a.socket {
		if a.stop == nil {
			a.follow(conn, m.InstanceUid, plan)
		}
		return answer // plans are sent by what follows them
	}
	if !plan.Unchanged {
		answer.RemoteConfig = remote(plan)
	}
	return answer
}

// became takes the health of an agent, whose components are tracepoints.
func (a *agent) became(health *protobufs.ComponentHealth) error {
	s := protocol.Status{Protocol: protocol.Version, Session: a.caller.Session}
	for id, h := range health.ComponentHealthMap {
		o := protocol.Outcome{ID: id, State: protocol.Applied, Reason: protocol.Printable(h.GetLastError(), protocol.MaxReason)}
		switch {
		case h.GetHealthy():
		case h.GetStatus() == string(protocol.Unsupported):
			o.State = protocol.Unsupported
		default:
			o.State = protocol.Failed
		}
		s.Tracepoints = append(s.Tracepoints, o)
	}
	if err := s.Validate(); err != nil {
		return err
	}
	return a.plane.ReportOutcomes(a.caller, s.Tracepoints)
}

// explain says what is wrong, and how the agent gets over it.
func (a *agent) explain(answer *protobufs.ServerToAgent, err error) *protobufs.ServerToAgent {
	switch {
	case errors.Is(err, control.ErrUnknown):
		answer.Flags = uint64(protobufs.ServerToAgentFlags_ServerToAgentFlags_ReportFullState)
		return answer
	case errors.Is(err, control.ErrConflict):
		other := make([]byte, 16)
		_, _ = rand.Read(other) // it never fails
		answer.AgentIdentification = &protobufs.AgentIdentification{NewInstanceUid: other}
		answer.Flags = uint64(protobufs.ServerToAgentFlags_ServerToAgentFlags_ReportFullState) // it registers at once
		return answer
	case errors.Is(err, control.ErrFull), errors.Is(err, control.ErrStarting):
		answer = refused(answer, protobufs.ServerErrorResponseType_ServerErrorResponseType_Unavailable, err.Error())
		answer.ErrorResponse.Details = &protobufs.ServerErrorResponse_RetryInfo{RetryInfo: &protobufs.RetryInfo{RetryAfterNanoseconds: uint64(later)}}
		return answer
	}
	return refused(answer, protobufs.ServerErrorResponseType_ServerErrorResponseType_BadRequest, err.Error())
}

func refused(answer *protobufs.ServerToAgent, kind protobufs.ServerErrorResponseType, why string) *protobufs.ServerToAgent {
	answer.ErrorResponse = &protobufs.ServerErrorResponse{Type: kind, ErrorMessage: why}
	return answer
}

// register registers the agent if the message says who it is and what it can switch on.
func (a *agent) register(m *protobufs.AgentToServer) error {
	if m.AgentDescription == nil || m.EffectiveConfig == nil {
		return nil
	}
	c, err := a.catalogue(m)
	if err != nil {
		return err
	}
	r := &protocol.Registration{Protocol: protocol.Version, Session: a.caller.Session, Resource: resource(m.AgentDescription), Catalogue: c.Catalogue}
	for page := range max(1, (len(c.Tracepoints)+protocol.PageSize-1)/protocol.PageSize) {
		if len(c.Tracepoints) > 0 {
			from, to := c.Page(page)
			r.Page = &protocol.Page{Number: page, Tracepoints: c.Tracepoints[from:to]}
		}
		if err := r.Validate(); err != nil {
			return err
		}
		if _, err := a.plane.Register(a.caller, r); err != nil {
			return err
		}
	}
	return nil
}

// catalogue returns the catalogue of a message: without its tracepoints if it is known, because of many agents with the same one only that of the first
// is looked at.
func (a *agent) catalogue(m *protobufs.AgentToServer) (c Catalogue, err error) {
	file := m.EffectiveConfig.GetConfigMap().GetConfigMap()[protocol.ConfigCatalogue]
	if file == nil {
		c.Hash = protocol.HashCatalogue(nil)
		return c, nil
	}
	var announced struct {
		protocol.Catalogue
		Tracepoints json.RawMessage `json:"tracepoints"`
	}
	if err := json.Unmarshal(file.Body, &announced); err != nil {
		return c, fmt.Errorf("%s: %w", protocol.ConfigCatalogue, control.BadJSON(err))
	}
	c.Catalogue = announced.Catalogue
	if a.plane.Knows(c.Catalogue) {
		return c, nil
	}
	if len(announced.Tracepoints) > 0 {
		if err := json.Unmarshal(announced.Tracepoints, &c.Tracepoints); err != nil {
			return c, fmt.Errorf("%s: %w", protocol.ConfigCatalogue, control.BadJSON(err))
		}
	}
	if len(c.Tracepoints) != c.Size {
		return c, fmt.Errorf("%s: %d tracepoints, of %d", protocol.ConfigCatalogue, len(c.Tracepoints), c.Size)
	}
	return c, nil
}

// resource returns the attributes of a description as texts.
func resource(d *protobufs.AgentDescription) map[string]string {
	attributes := make(map[string]string)
	for _, list := range [][]*protobufs.KeyValue{d.IdentifyingAttributes, d.NonIdentifyingAttributes} {
		for _, kv := range list {
			if text := textOf(kv.Value); text != "" && len(attributes) < protocol.MaxResource {
				attributes[protocol.Printable(kv.Key, protocol.MaxText)] = protocol.Printable(text, protocol.MaxReason)
			}
		}
	}
	return attributes
}

// textOf returns a value as text; empty for those that are none.
func textOf(v *protobufs.AnyValue) string {
	switch x := v.GetValue().(type) {
	case *protobufs.AnyValue_StringValue:
		return x.StringValue
	case *protobufs.AnyValue_IntValue:
		return strconv.FormatInt(x.IntValue, 10)
	case *protobufs.AnyValue_BoolValue:
		return strconv.FormatBool(x.BoolValue)
	}
	return ""
}

// remote returns a plan as a remote configuration.
func remote(t control.PlanAnswer) *protobufs.AgentRemoteConfig {
	return &protobufs.AgentRemoteConfig{ConfigHash: []byte(t.Hash), Config: &protobufs.AgentConfigMap{ConfigMap: map[string]*protobufs.AgentConfigFile{
		protocol.ConfigPlan: {Body: t.JSON, ContentType: "application/json"},
	}}}
}

// follow sends the agent at the other end of a socket its plans until the connection ends, beginning with told.
func (a *agent) follow(conn types.Connection, id []byte, plan control.PlanAnswer) {
	if !a.admit() {
		_ = conn.Disconnect() // it may be gone
		return
	}
	ctx, stop := context.WithCancel(a.closing)
	a.stop = stop
	caller := a.caller
	go func() {
		defer a.open.Done()
		defer func() {
			if ctx.Err() == nil || a.closing.Err() != nil { // or else somebody else knows why
				_ = conn.Disconnect() // the agent connects again, or is gone
			}
		}()
		for ctx.Err() == nil {
			m := &protobufs.ServerToAgent{InstanceUid: id, Capabilities: capabilities}
			if !plan.Unchanged {
				m.RemoteConfig = remote(plan)
			}
			_ = conn.Connection().SetWriteDeadline(time.Now().Add(writeWithin)) // a connection that is gone fails below
			if conn.Send(ctx, m) != nil {
				return
			}
			var err error
			if plan, err = a.plane.Wait(ctx, caller, plan.Hash, math.MaxInt64); err != nil {
				return
			}
		}
	}()
}

// writeWithin is how long an agent has to take a message.
const writeWithin = 20 * time.Second

// unread notes that a message was none.
func (a *agent) unread(conn types.Connection, _ int, _ []byte, _ error) { taken(conn) }

// closed notes that the connection ended.
func (a *agent) closed(conn types.Connection) {
	taken(conn)
	if a.stop != nil {
		a.stop()
	}
	if a.socket && a.caller.ID != "" {
		a.plane.Release(a.caller)
	}
}
