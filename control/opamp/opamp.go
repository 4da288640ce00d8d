// Package opamp serves agents that speak OpAMP (Open Agent Management Protocol), over WebSocket or plain HTTP. It uses
// core messages only:
//
//   - The file [protocol.ConfigCatalogue] of the effective configuration contains the catalogue: a [Catalogue] as JSON.
//   - The file [protocol.ConfigPlan] of the remote configuration contains the plan: a [protocol.Plan] as JSON. Its hash
//     is the config_hash.
//   - RemoteConfigStatus reports whether the agent applied the plan; the health of components, named by IDs of
//     tracepoints, reports outcomes.
//   - The agent description contains the resource.
//   - Every message of the server renews the lease. Over WebSocket the server sends one at least every third of a
//     lease. Over HTTP the agent must poll as often.
//
// Core messages cannot report the cost of hits, so we estimate the costs for these agents.
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

// Catalogue is the whole catalogue of an agent.
type Catalogue struct {
	protocol.Catalogue
	Tracepoints []protocol.Tracepoint `json:"tracepoints"` // ascending by ID
}

// Path is the path that agents connect to.
const Path = "/v1/opamp"

// Server serves agents that speak OpAMP. It is safe for concurrent use.
type Server struct {
	plane    *control.Plane
	identify func(*http.Request) (control.Identity, error)
	log      *slog.Logger
	handle   server.HTTPHandlerFunc
	context  server.ConnContext
	closing  context.Context //nolint:containedctx // done when Close is called; parent of all connections
	close    context.CancelFunc

	mu      sync.Mutex     // ensures that Add is called before Wait if a connection opens while the server closes
	sending sync.WaitGroup // goroutines that send plans to sockets; mu guards Add
}

// New returns a Server for the agents of plane. identify must return the token that a request carries, or a
// [*refusal.Error].
func New(
	plane *control.Plane, identify func(*http.Request) (control.Identity, error), log *slog.Logger,
) (*Server, error) {
	s := &Server{plane: plane, identify: identify, log: log}
	s.closing, s.close = context.WithCancel(context.Background()) //nolint:forbidigo // Close ends it
	var err error
	s.handle, s.context, err = server.New(debugLog{log}).Attach(server.Settings{
		// without compression, because the library doesn't bound decompressed messages
		Callbacks: types.Callbacks{OnConnecting: s.connecting},
	})
	if err != nil {
		return nil, fmt.Errorf("attach OpAMP: %w", err)
	}
	return s, nil
}

// debugLog logs all messages of the library at debug level. This includes errors, because most of them only report
// closed connections.
type debugLog struct{ log *slog.Logger }

// Debugf implements the logger of the library.
func (l debugLog) Debugf(ctx context.Context, format string, v ...any) {
	l.log.LogAttrs(ctx, slog.LevelDebug, "opamp", slog.String("message", fmt.Sprintf(format, v...)))
}

// Errorf implements the logger of the library.
func (l debugLog) Errorf(ctx context.Context, format string, v ...any) {
	l.Debugf(ctx, format, v...)
}

// ConnContext returns the function to set as ConnContext of the [http.Server] that serves s.
func (s *Server) ConnContext() server.ConnContext { return s.context }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != Path {
		refused := refusal.New(refusal.NotFound, "no such resource", "agents that speak OpAMP connect to "+Path)
		refused.Write(w, refused.Problem())
		return
	}
	if r.Header.Get("Content-Type") == "application/x-protobuf" {
		body, done, err := s.plane.Messages.Body(w, r, MaxMessage)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		defer done()
		r.Header.Del("Content-Encoding")
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	s.handle(hijacker{w, s.plane}, r)
}

// retryAfter is the delay after which an agent should retry when the server is overloaded.
const retryAfter = 5 * time.Second

// refuse answers a request with the refusal for err.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	refused := s.refusalOf(r.Context(), err)
	if errors.Is(refused, refusal.Overloaded) {
		refused = refused.Later(retryAfter)
	}
	refused.Write(w, refused.Problem())
}

// refusalOf returns the refusal in err. If err contains no refusal, refusalOf logs it and returns one that hides it
// from the client.
func (s *Server) refusalOf(ctx context.Context, err error) *refusal.Error {
	if refused, ok := errors.AsType[*refusal.Error](err); ok {
		return refused
	}
	s.log.LogAttrs(ctx, slog.LevelError, "a request of an OpAMP agent failed", slog.Any("error", err))
	return refusal.Failure()
}

// Close ends all connections and waits for their goroutines.
func (s *Server) Close() {
	s.mu.Lock()
	s.close()
	s.mu.Unlock()
	s.sending.Wait()
}

// admit adds a goroutine to s.sending, or returns false if the server is closing.
func (s *Server) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return false
	}
	s.sending.Add(1)
	return true
}

// connecting is called when an agent connects: once per WebSocket, or for each message over HTTP.
func (s *Server) connecting(r *http.Request) types.ConnectionResponse {
	who, err := s.identify(r)
	if err != nil {
		return types.ConnectionResponse{HTTPStatusCode: s.refusalOf(r.Context(), err).Code()}
	}
	caller := control.Caller{Principal: who.Token, Services: who.Services, Transport: "opamp", Session: "http"}
	c := &connection{server: s, plane: s.plane, caller: caller}
	if r.Header.Get("Upgrade") != "" {
		c.caller.Session = rand.Text() // a connection is a session
		c.isSocket = true
	}
	return types.ConnectionResponse{Accept: true, ConnectionCallbacks: types.ConnectionCallbacks{
		OnMessage: c.message, OnReadMessageError: c.malformed, OnConnectionClose: c.closed,
	}}
}

// connection handles the messages of one connection. The library never calls its methods concurrently.
type connection struct {
	server   *Server
	plane    *control.Plane // of the server
	caller   control.Caller
	isSocket bool
	stop     context.CancelFunc // ends the goroutine that sends plans; may be nil
}

// setID sets the agent's ID. If it changes after plans were sent, the former agent leaves, and plans are sent to the
// new agent, because a connection has one agent at a time.
func (c *connection) setID(id string) {
	if c.stop != nil && id != c.caller.ID {
		c.stop()
		c.stop = nil
		c.plane.Leave(c.caller)
	}
	c.caller.ID = id
}

const capabilities = uint64(protobufs.ServerCapabilities_ServerCapabilities_AcceptsStatus |
	protobufs.ServerCapabilities_ServerCapabilities_OffersRemoteConfig |
	protobufs.ServerCapabilities_ServerCapabilities_AcceptsEffectiveConfig)

// message processes m and returns the answer.
func (c *connection) message(
	_ context.Context, conn types.Connection, m *protobufs.AgentToServer,
) *protobufs.ServerToAgent {
	defer endMessage(conn)
	answer := &protobufs.ServerToAgent{InstanceUid: m.InstanceUid, Capabilities: capabilities}
	c.setID(hex.EncodeToString(m.InstanceUid))
	if len(m.InstanceUid) != 16 {
		return refused(answer, badRequest, "instance_uid: want 16 bytes")
	}
	if m.AgentDisconnect != nil {
		c.plane.Leave(c.caller)
		return answer
	}
	err := c.register(m)
	if err == nil && m.RemoteConfigStatus != nil {
		err = c.applied(m.RemoteConfigStatus)
	}
	if err == nil && m.Health != nil {
		err = c.health(m.Health)
	}
	var plan control.PlanAnswer
	if err == nil {
		plan, err = c.plane.Plan(c.caller, c.plane.AppliedHash(c.caller))
	}
	if err != nil {
		return c.refuse(answer, err)
	}
	if c.isSocket {
		if c.stop == nil {
			c.follow(conn, m.InstanceUid, plan)
		}
		return answer // follow sends plans
	}
	if !plan.Unchanged {
		answer.RemoteConfig = remoteConfig(plan)
	}
	return answer
}

// applied reports to the plane whether the agent applied a plan.
func (c *connection) applied(status *protobufs.RemoteConfigStatus) error {
	hash := string(status.LastRemoteConfigHash)
	switch status.Status {
	case protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED:
		return c.plane.ReportApplied(c.caller, hash, "")
	case protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED:
		why := "the agent reports: " + protocol.Printable(status.ErrorMessage, protocol.MaxReason)
		return c.plane.ReportApplied(c.caller, hash, why)
	case protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLYING,
		protobufs.RemoteConfigStatuses_RemoteConfigStatuses_UNSET:
	}
	return nil
}

// health reports the outcomes of tracepoints to the plane. The tracepoints are the components of an agent's health.
func (c *connection) health(health *protobufs.ComponentHealth) error {
	s := protocol.Status{Protocol: protocol.Version, Session: c.caller.Session}
	for id, h := range health.ComponentHealthMap {
		reason := protocol.Printable(h.GetLastError(), protocol.MaxReason)
		o := protocol.Outcome{ID: id, State: protocol.Applied, Reason: reason}
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
	return c.plane.ReportOutcomes(c.caller, s.Tracepoints)
}

// refuse adds err to answer, with instructions if the agent can recover, and returns answer.
func (c *connection) refuse(answer *protobufs.ServerToAgent, err error) *protobufs.ServerToAgent {
	switch {
	case errors.Is(err, control.ErrUnknown):
		answer.Flags = uint64(protobufs.ServerToAgentFlags_ServerToAgentFlags_ReportFullState)
		return answer
	case errors.Is(err, control.ErrConflict):
		other := make([]byte, 16)
		_, _ = rand.Read(other) // never fails
		answer.AgentIdentification = &protobufs.AgentIdentification{NewInstanceUid: other}
		answer.Flags = uint64(protobufs.ServerToAgentFlags_ServerToAgentFlags_ReportFullState) // registers at once
		return answer
	case errors.Is(err, control.ErrFull), errors.Is(err, control.ErrTracepoints), errors.Is(err, control.ErrStarting):
		answer = refused(answer, unavailable, err.Error())
		retry := &protobufs.RetryInfo{RetryAfterNanoseconds: uint64(retryAfter)}
		answer.ErrorResponse.Details = &protobufs.ServerErrorResponse_RetryInfo{RetryInfo: retry}
		return answer
	}
	return refused(answer, badRequest, err.Error())
}

const (
	badRequest  = protobufs.ServerErrorResponseType_ServerErrorResponseType_BadRequest
	unavailable = protobufs.ServerErrorResponseType_ServerErrorResponseType_Unavailable
)

func refused(
	answer *protobufs.ServerToAgent, kind protobufs.ServerErrorResponseType, why string,
) *protobufs.ServerToAgent {
	answer.ErrorResponse = &protobufs.ServerErrorResponse{Type: kind, ErrorMessage: why}
	return answer
}

// register registers the agent if m contains both its description and its effective configuration.
func (c *connection) register(m *protobufs.AgentToServer) error {
	if m.AgentDescription == nil || m.EffectiveConfig == nil {
		return nil
	}
	list, err := c.catalogue(m)
	if err != nil {
		return err
	}
	r := &protocol.Registration{
		Protocol:  protocol.Version,
		Session:   c.caller.Session,
		Resource:  resource(m.AgentDescription),
		Catalogue: list.Catalogue,
	}
	for page := range max(1, (len(list.Tracepoints)+protocol.PageSize-1)/protocol.PageSize) {
		if len(list.Tracepoints) > 0 {
			from, to := list.Page(page)
			r.Page = &protocol.Page{Number: page, Tracepoints: list.Tracepoints[from:to]}
		}
		if err := r.Validate(); err != nil {
			return err
		}
		if _, err := c.plane.Register(c.caller, r); err != nil {
			return err
		}
	}
	return nil
}

// catalogue returns the catalogue in m, or an empty catalogue if there is none. It omits the tracepoints if the plane
// already has them, so that a catalogue shared by many agents is decoded only once.
func (c *connection) catalogue(m *protobufs.AgentToServer) (list Catalogue, err error) {
	file := m.EffectiveConfig.GetConfigMap().GetConfigMap()[protocol.ConfigCatalogue]
	if file == nil {
		list.Hash = protocol.HashCatalogue(nil)
		return list, nil
	}
	var announced struct {
		protocol.Catalogue
		Tracepoints json.RawMessage `json:"tracepoints"`
	}
	if err := json.Unmarshal(file.Body, &announced); err != nil {
		return list, fmt.Errorf("%s: %w", protocol.ConfigCatalogue, control.BadJSON(err))
	}
	list.Catalogue = announced.Catalogue
	if c.plane.HasCatalogue(list.Catalogue) {
		return list, nil
	}
	if len(announced.Tracepoints) > 0 {
		if err := json.Unmarshal(announced.Tracepoints, &list.Tracepoints); err != nil {
			return list, fmt.Errorf("%s: %w", protocol.ConfigCatalogue, control.BadJSON(err))
		}
	}
	if len(list.Tracepoints) != list.Size {
		n := len(list.Tracepoints)
		return list, fmt.Errorf("%s: %d tracepoints, want %d", protocol.ConfigCatalogue, n, list.Size)
	}
	return list, nil
}

// resource returns the attributes in d as printable text, but at most [protocol.MaxResource] of them.
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

// textOf returns v as text if it is a string, an integer or a boolean, and "" otherwise.
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

// remoteConfig returns plan as a remote configuration.
func remoteConfig(plan control.PlanAnswer) *protobufs.AgentRemoteConfig {
	files := map[string]*protobufs.AgentConfigFile{
		protocol.ConfigPlan: {Body: plan.JSON, ContentType: "application/json"},
	}
	return &protobufs.AgentRemoteConfig{
		ConfigHash: []byte(plan.Hash),
		Config:     &protobufs.AgentConfigMap{ConfigMap: files},
	}
}

// follow starts a goroutine that sends plans to the agent, starting with plan, until the connection ends.
func (c *connection) follow(conn types.Connection, id []byte, plan control.PlanAnswer) {
	if !c.server.admit() {
		_ = conn.Disconnect() // fails if the agent has disconnected
		return
	}
	ctx, stop := context.WithCancel(c.server.closing)
	c.stop = stop
	caller := c.caller
	go func() {
		defer c.server.sending.Done()
		defer func() {
			if ctx.Err() == nil || c.server.closing.Err() != nil { // not stopped by setID or closed
				_ = conn.Disconnect() // the agent connects again; fails if it has disconnected
			}
		}()
		for ctx.Err() == nil {
			m := &protobufs.ServerToAgent{InstanceUid: id, Capabilities: capabilities}
			if !plan.Unchanged {
				m.RemoteConfig = remoteConfig(plan)
			}
			_ = conn.Connection().SetWriteDeadline(time.Now().Add(writeTimeout)) // if it fails, so does Send
			if conn.Send(ctx, m) != nil {
				return
			}
			var err error
			if plan, err = c.plane.Wait(ctx, caller, plan.Hash, math.MaxInt64); err != nil {
				return
			}
		}
	}()
}

// writeTimeout is the time limit for an agent to receive a message.
const writeTimeout = 20 * time.Second

// malformed is called if a message can't be decoded.
func (c *connection) malformed(conn types.Connection, _ int, _ []byte, _ error) { endMessage(conn) }

// closed is called when the connection has ended. It stops sending plans and releases the agent's ID.
func (c *connection) closed(conn types.Connection) {
	endMessage(conn)
	if c.stop != nil {
		c.stop()
	}
	if c.isSocket && c.caller.ID != "" {
		c.plane.Release(c.caller)
	}
}
