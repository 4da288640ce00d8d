package opamp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-telemetry/opamp-go/client"
	"github.com/open-telemetry/opamp-go/client/types"
	"github.com/open-telemetry/opamp-go/protobufs"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/control/opamp"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// ignore is an engine that ignores feedback.
type ignore struct{}

func (ignore) Record(context.Context, *search.Feedback) error { return nil }

// silent is a logger for the client that discards everything.
type silent struct{}

func (silent) Debugf(context.Context, string, ...any) {}
func (silent) Errorf(context.Context, string, ...any) {}

// harness is a control plane with an OpAMP server.
type harness struct {
	plane *control.Plane
	opamp *opamp.Server
	url   string // host and path
	table trace.Table
}

func newHarness(t *testing.T, lease time.Duration) *harness {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	w := &harness{plane: control.New(ignore{}, control.Options{Lease: lease, Log: log})}
	var err error
	identify := func(r *http.Request) (control.Identity, error) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			return control.Identity{}, refusal.New(refusal.Unauthenticated, "", "")
		}
		return control.Identity{Token: "token"}, nil
	}
	if w.opamp, err = opamp.New(w.plane, identify, log); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(w.opamp)
	s.Config.ConnContext = w.opamp.ConnContext()
	s.Start()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	w.plane.Begin(nil)
	running.Go(func() { _ = w.plane.Run(ctx) })
	t.Cleanup(func() {
		w.opamp.Close()
		w.plane.Close()
		s.CloseClientConnections()
		s.Close()
		stop()
		running.Wait()
	})
	w.url = s.Listener.Addr().String() + opamp.Path
	return w
}

// on publishes a plan with the given version that enables the tracepoint with the given id.
func (w *harness) on(version int64, id string) {
	w.plane.Publish(&search.Plan{
		Version: version,
		Arms:    []search.Arm{{Name: trace.SymbolOf([]byte("a")), Share: 1}},
		Leases:  []search.Lease{{Tracepoint: w.table.Symbol(id)}},
	}, &w.table)
}

// agent is an agent built on the OpAMP client library.
type agent struct {
	client client.OpAMPClient
	plans  chan *protocol.Plan
	id     types.InstanceUid
	newIDs chan types.InstanceUid // IDs assigned by the server
}

func attribute(key, value string) *protobufs.KeyValue {
	return &protobufs.KeyValue{
		Key: key, Value: &protobufs.AnyValue{Value: &protobufs.AnyValue_StringValue{StringValue: value}},
	}
}

// connect starts an agent of the service shop with n tracepoints.
func connect(t *testing.T, w *harness, scheme string, id byte, n int) *agent {
	t.Helper()
	a := &agent{plans: make(chan *protocol.Plan, 100), newIDs: make(chan types.InstanceUid, 100)}
	a.id[0] = id
	url := scheme + "://" + w.url
	if scheme == "ws" {
		a.client = client.NewWebSocket(silent{})
	} else {
		h := client.NewHTTP(silent{})
		h.SetPollingInterval(100 * time.Millisecond)
		a.client = h
	}
	c := opamp.Catalogue{}
	for i := range n {
		c.Tracepoints = append(c.Tracepoints, protocol.Tracepoint{
			ID:        fmt.Sprintf("shop/%06d", i),
			Layer:     protocol.App,
			Kind:      protocol.SpanPoint,
			Service:   "shop",
			Operation: "step",
		})
	}
	c.Catalogue = protocol.Catalogue{Hash: protocol.HashCatalogue(c.Tracepoints), Size: n}
	body, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	shop := []*protobufs.KeyValue{attribute("service.name", "shop")}
	if err := a.client.SetAgentDescription(&protobufs.AgentDescription{IdentifyingAttributes: shop}); err != nil {
		t.Fatal(err)
	}
	capabilities := protobufs.AgentCapabilities_AgentCapabilities_ReportsStatus |
		protobufs.AgentCapabilities_AgentCapabilities_AcceptsRemoteConfig |
		protobufs.AgentCapabilities_AgentCapabilities_ReportsEffectiveConfig |
		protobufs.AgentCapabilities_AgentCapabilities_ReportsRemoteConfig |
		protobufs.AgentCapabilities_AgentCapabilities_ReportsHealth
	if err := a.client.SetHealth(&protobufs.ComponentHealth{Healthy: true}); err != nil {
		t.Fatal(err)
	}
	if err := a.client.SetCapabilities(&capabilities); err != nil {
		t.Fatal(err)
	}
	err = a.client.Start(t.Context(), types.StartSettings{
		OpAMPServerURL: url, Header: http.Header{"Authorization": {"Bearer secret"}}, InstanceUid: a.id,
		Callbacks: types.Callbacks{
			GetEffectiveConfig: func(context.Context) (*protobufs.EffectiveConfig, error) {
				files := map[string]*protobufs.AgentConfigFile{
					protocol.ConfigCatalogue: {Body: body, ContentType: "application/json"},
				}
				return &protobufs.EffectiveConfig{ConfigMap: &protobufs.AgentConfigMap{ConfigMap: files}}, nil
			},
			OnMessage: func(_ context.Context, m *types.MessageData) {
				if m.AgentIdentification != nil {
					a.newIDs <- types.InstanceUid(m.AgentIdentification.NewInstanceUid)
				}
				if m.RemoteConfig == nil {
					return
				}
				plan, err := protocol.DecodePlan(m.RemoteConfig.Config.ConfigMap[protocol.ConfigPlan].Body)
				if err != nil || plan.Hash != string(m.RemoteConfig.ConfigHash) {
					t.Error(err, plan)
					return
				}
				if err := a.client.SetRemoteConfigStatus(&protobufs.RemoteConfigStatus{
					LastRemoteConfigHash: m.RemoteConfig.ConfigHash,
					Status:               protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED,
				}); err != nil {
					t.Error(err)
				}
				a.plans <- plan
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// plan waits for the plan with the given version.
func (a *agent) plan(t *testing.T, version int64) *protocol.Plan {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		select {
		case p := <-a.plans:
			if p.Version == version {
				return p
			}
		case <-deadline:
			t.Fatalf("plan %d did not arrive", version)
		}
	}
}

// until waits until done returns true. It fails the test with failure after a minute.
func until(t *testing.T, failure string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(failure)
		}
	}
}

// Agents announce their catalogues, receive plans, report whether they applied them, and stay known while they are
// connected, over both transports.
func TestAgents(t *testing.T) {
	for _, scheme := range []string{"ws", "http"} {
		t.Run(scheme, func(t *testing.T) {
			w := newHarness(t, 3*time.Second)
			a := connect(t, w, scheme, 1, protocol.PageSize+1)
			if p := a.plan(t, 0); len(p.Arms) != 0 {
				t.Errorf("first plan: %+v, want no arms", p)
			}
			w.on(1, "shop/000001")
			if p := a.plan(t, 1); len(p.Arms) != 1 || len(p.Arms[0].Tracepoints) != 1 ||
				p.Arms[0].Tracepoints[0].ID != "shop/000001" {
				t.Errorf("second plan: %+v", p)
			}
			current := func() bool {
				all := w.plane.Agents()
				return len(all) == 1 && all[0].State == control.Current && all[0].Version == 1 && all[0].Applied == 1 &&
					all[0].Service == "shop" && all[0].Tracepoints == protocol.PageSize+1 && !all[0].Incomplete
			}
			until(t, "the plan is not reported as applied", current)
			time.Sleep(4 * time.Second) // longer than a lease
			if !current() {
				t.Errorf("after a lease: %+v", w.plane.Agents())
			}
			health := &protobufs.ComponentHealth{
				Healthy:            true,
				ComponentHealthMap: map[string]*protobufs.ComponentHealth{"shop/000001": {LastError: "no memory"}},
			}
			if err := a.client.SetHealth(health); err != nil {
				t.Fatal(err)
			}
			until(t, "the failure of the tracepoint is not reported", func() bool {
				all := w.plane.Agents()
				return len(all) == 1 && all[0].Applied == 0 && all[0].Failed == 1 &&
					all[0].Problem == "shop/000001: no memory"
			})
			if len(a.plans) > 0 {
				t.Error("the server repeated a plan that the agent has")
			}
			if err := a.client.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// An agent with the ID of another connected agent receives a new ID; the first keeps its own.
func TestSameID(t *testing.T) {
	w := newHarness(t, 30*time.Second)
	first := connect(t, w, "ws", 1, 2)
	first.plan(t, 0)
	second := connect(t, w, "ws", 1, 2)
	select {
	case id := <-second.newIDs:
		if id == first.id {
			t.Error("the server assigned the same ID")
		}
	case <-time.After(time.Minute):
		t.Fatal("the server assigned no ID")
	}
	until(t, "the second agent did not register with its new ID", func() bool { return len(w.plane.Agents()) == 2 })
	w.on(1, "shop/000001")
	first.plan(t, 1)
	second.plan(t, 1)
	for _, a := range []*agent{first, second} {
		if err := a.client.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// An agent that reconnects keeps its ID and receives its plan at once.
func TestReconnect(t *testing.T) {
	w := newHarness(t, 30*time.Second)
	a := connect(t, w, "ws", 1, 2)
	a.plan(t, 0)
	if err := a.client.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.on(1, "shop/000001")
	b := connect(t, w, "ws", 1, 2)
	b.plan(t, 1)
	if len(b.newIDs) > 0 {
		t.Error("the server assigned another ID")
	}
	if err := b.client.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Requests without a token and invalid messages are refused.
func TestRefused(t *testing.T) {
	w := newHarness(t, 30*time.Second)
	for _, c := range []struct {
		path, token, body, encoding string
		want                        int
	}{
		{opamp.Path, "", "", "", http.StatusUnauthorized},
		{opamp.Path, "Bearer secret", "x", "gzip", http.StatusBadRequest},
		{opamp.Path, "Bearer secret", "\xff", "", http.StatusBadRequest},
		{opamp.Path, "Bearer secret", "x", "br", http.StatusUnsupportedMediaType},
		{opamp.Path, "Bearer secret", strings.Repeat("x", opamp.MaxMessage+1), "", http.StatusRequestEntityTooLarge},
		{"/elsewhere", "Bearer secret", "", "", http.StatusNotFound},
	} {
		r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/x-protobuf")
		r.Header.Set("Authorization", c.token)
		r.Header.Set("Content-Encoding", c.encoding)
		a := httptest.NewRecorder()
		w.opamp.ServeHTTP(a, r)
		if a.Code != c.want {
			t.Errorf("%.100q: status %d, want %d", fmt.Sprint(c), a.Code, c.want)
		}
	}
}
