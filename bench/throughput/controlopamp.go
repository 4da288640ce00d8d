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

// silent is a logger of OpAMP's client.
type silent struct{}

// Debugf implements the logger of the library.
func (silent) Debugf(context.Context, string, ...any) {}

// Errorf implements the logger of the library.
func (silent) Errorf(context.Context, string, ...any) {}

// opampAgent is an agent that is connected over a WebSocket, by OpAMP's own client, until ctx is done. It counts as registered when the server
// said something since it is connected.
func (f *fleet) opampAgent(ctx context.Context, i int) {
	c := client.NewWebSocket(silent{})
	var id types.InstanceUid
	binary.BigEndian.PutUint64(id[8:], uint64(i)+1)
	capabilities := protobufs.AgentCapabilities_AgentCapabilities_ReportsStatus | protobufs.AgentCapabilities_AgentCapabilities_AcceptsRemoteConfig |
		protobufs.AgentCapabilities_AgentCapabilities_ReportsEffectiveConfig | protobufs.AgentCapabilities_AgentCapabilities_ReportsRemoteConfig
	must(c.SetCapabilities(&capabilities))
	must(c.SetAgentDescription(&protobufs.AgentDescription{IdentifyingAttributes: []*protobufs.KeyValue{{
		Key: "service.name", Value: &protobufs.AnyValue{Value: &protobufs.AnyValue_StringValue{StringValue: serviceName(i % f.o.Services)}},
	}}}))
	var heard atomic.Bool
	must(c.Start(ctx, types.StartSettings{
		OpAMPServerURL: "ws://" + f.o.opamp + "/v1/opamp", InstanceUid: id,
		Callbacks: types.Callbacks{
			OnConnect: func(context.Context) { heard.Store(false) },
			GetEffectiveConfig: func(context.Context) (*protobufs.EffectiveConfig, error) {
				return &protobufs.EffectiveConfig{ConfigMap: &protobufs.AgentConfigMap{ConfigMap: map[string]*protobufs.AgentConfigFile{
					protocol.ConfigCatalogue: {Body: f.catalogues[i%f.o.Services], ContentType: "application/json"},
				}}}, nil
			},
			OnMessage: func(_ context.Context, m *types.MessageData) {
				f.requests.Add(1)
				if heard.CompareAndSwap(false, true) {
					f.registered.Add(1)
				}
				if m.RemoteConfig == nil {
					return
				}
				f.arrived(string(m.RemoteConfig.ConfigHash), m.RemoteConfig.Config.ConfigMap[protocol.ConfigPlan].Body)
				must(c.SetRemoteConfigStatus(&protobufs.RemoteConfigStatus{
					LastRemoteConfigHash: m.RemoteConfig.ConfigHash, Status: protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED,
				}))
			},
		},
	}))
	<-ctx.Done()
	_ = c.Stop(context.WithoutCancel(ctx)) // the process ends anyway
}

// must panics if what cannot fail did.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
