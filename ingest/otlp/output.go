package otlp

import (
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// output builds spans from the decoded fields.
type output struct {
	build     *ingest.Builder
	keys      *ingest.Keys
	scopeName []byte // name of the current scope
}

// scopeKey is the key of the attribute that holds the name of a span's instrumentation scope.
var scopeKey = []byte("otel.scope.name")

// Bits of Span.flags.
const (
	flagHasRemote = 1 << 8
	flagRemote    = 1 << 9
)

// flags sets the flags of the current span from v, the value of Span.flags.
func (o *output) flags(v uint32) {
	o.build.Flags &^= trace.RemoteParent
	if v&flagHasRemote != 0 && v&flagRemote != 0 {
		o.build.Flags |= trace.RemoteParent
	}
}

func kindOf(v int32) trace.Kind {
	if v < int32(trace.Unspecified) || v > int32(trace.Consumer) {
		return trace.Unspecified
	}
	return trace.Kind(v)
}

// statusCode sets the status of the current span. An unknown code counts as unset.
func (o *output) statusCode(code int32) {
	status := ingest.StatusUnset
	if code == int32(ingest.StatusOK) || code == int32(ingest.StatusError) {
		status = ingest.Status(code)
	}
	o.build.Status(status)
}

// shareScopeName adds the name of the current scope to the attributes of the scope's spans, after the scope's own
// attributes, if scope names are requested.
func (o *output) shareScopeName() {
	if found := o.keys.Find(scopeKey); found != ingest.Unwanted && len(o.scopeName) != 0 {
		o.build.SharedAttr(found, scopeKey, ingest.Value{Text: o.scopeName})
	}
}
