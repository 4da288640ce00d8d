package throughput

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	"github.com/open-telemetry/opamp-go/client"
	"github.com/open-telemetry/opamp-go/client/types"
	"github.com/open-telemetry/opamp-go/protobufs"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// nopLogger discards the log of OpAMP's client.
type nopLogger struct{}

// Debugf implements [types.Logger].
func (nopLogger) Debugf(context.Context, string, ...any) {}

// Errorf implements [types.Logger].
func (nopLogger) Errorf(context.Context, string, ...any) {}

// opampAgent runs an agent with OpAMP's own client, over a WebSocket, until ctx ends. The agent counts as registered
// after the server's first message on a connection.
func (f *fleet) opampAgent(ctx context.Context, i int) {
	c := client.NewWebSocket(nopLogger{})
	var id types.InstanceUid
	binary.BigEndian.PutUint64(id[8:], uint64(i)+1)
	capabilities := protobufs.AgentCapabilities_AgentCapabilities_ReportsStatus |
		protobufs.AgentCapabilities_AgentCapabilities_AcceptsRemoteConfig |
		protobufs.AgentCapabilities_AgentCapabilities_ReportsEffectiveConfig |
		protobufs.AgentCapabilities_AgentCapabilities_ReportsRemoteConfig
	must(c.SetCapabilities(&capabilities))
	must(c.SetAgentDescription(&protobufs.AgentDescription{IdentifyingAttributes: []*protobufs.KeyValue{{
		Key:   "service.name",
		Value: &protobufs.AnyValue{Value: &protobufs.AnyValue_StringValue{StringValue: serviceName(i % f.o.Services)}},
	}}}))
	var answered atomic.Bool // on the current connection
	must(c.Start(ctx, types.StartSettings{
		OpAMPServerURL: "ws://" + f.o.opamp + "/v1/opamp", InstanceUid: id,
		Callbacks: types.Callbacks{
			OnConnect: func(context.Context) { answered.Store(false) },
			GetEffectiveConfig: func(context.Context) (*protobufs.EffectiveConfig, error) {
				files := map[string]*protobufs.AgentConfigFile{
					protocol.ConfigCatalogue: {Body: f.catalogues[i%f.o.Services], ContentType: "application/json"},
				}
				return &protobufs.EffectiveConfig{ConfigMap: &protobufs.AgentConfigMap{ConfigMap: files}}, nil
			},
			OnMessage: func(_ context.Context, m *types.MessageData) {
				f.requests.Add(1)
				if answered.CompareAndSwap(false, true) {
					f.registered.Add(1)
				}
				if m.RemoteConfig == nil {
					return
				}
				f.received(string(m.RemoteConfig.ConfigHash), m.RemoteConfig.Config.ConfigMap[protocol.ConfigPlan].Body)
				must(c.SetRemoteConfigStatus(&protobufs.RemoteConfigStatus{
					LastRemoteConfigHash: m.RemoteConfig.ConfigHash,
					Status:               protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED,
				}))
			},
		},
	}))
	<-ctx.Done()
	_ = c.Stop(context.WithoutCancel(ctx)) // the process exits soon
}

// must panics if err is not nil. It is for calls that fail only because of a bug.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
