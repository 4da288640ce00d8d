package otlp_test

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// reference decodes requests with pdata, the collector's decoder. Tests and benchmarks compare [otlp.Decoder] with it.
// It shares no code with the Decoder except the dictionary. It recurses into nested values, so it must not be used with
// hostile input.
type reference struct {
	names ingest.Names
	keys  map[string]bool // requested keys; nil for all
}

// newReference returns a decoder like [otlp.NewDecoder] for the keys with the given names, or for all keys.
func newReference(table *trace.Table, all bool, names ...string) *reference {
	r := &reference{names: ingest.Names{Table: table}}
	if all {
		return r
	}
	r.keys = map[string]bool{trace.KeyPlan: true, trace.KeyArm: true}
	for _, name := range names {
		r.keys[name] = true
	}
	return r
}

// Protobuf decodes one request like [otlp.Decoder.Protobuf].
func (r *reference) Protobuf(data []byte, into *ingest.Batch) error {
	traces, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
	if err == nil {
		r.traces(traces, into)
	}
	return err
}

// JSON decodes one request like [otlp.Decoder.JSON].
func (r *reference) JSON(data []byte, into *ingest.Batch) error {
	traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(data)
	if err == nil {
		r.traces(traces, into)
	}
	return err
}

func (r *reference) traces(traces ptrace.Traces, into *ingest.Batch) {
	for _, rs := range traces.ResourceSpans().All() {
		resource := rs.Resource().Attributes()
		before := len(into.Spans)
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				r.span(resource, ss.Scope(), s, into)
			}
		}
		r.version(resource, into.Spans[before:], into)
	}
}

func (r *reference) span(resource pcommon.Map, scope pcommon.InstrumentationScope, s ptrace.Span, into *ingest.Batch) {
	service := text(resource, "service.name")
	switch {
	case s.TraceID().IsEmpty():
		into.Reject(trace.BadTraceID, "trace id is empty", 1)
	case s.SpanID().IsEmpty():
		into.Reject(trace.BadSpanID, "span id is empty", 1)
	case uint64(max(s.StartTimestamp(), s.EndTimestamp())) > uint64(trace.MaxNanos):
		into.Reject(trace.BadTime, "time out of range", 1)
	default:
		out := trace.Span{
			ID:      spanIDOf(s.SpanID()),
			Parent:  spanIDOf(s.ParentSpanID()),
			Start:   trace.Nanos(s.StartTimestamp()),
			End:     trace.Nanos(s.EndTimestamp()),
			Service: r.names.Symbol([]byte(service)),
			Host:    r.host(resource),
		}
		if k := s.Kind(); k >= ptrace.SpanKindInternal && k <= ptrace.SpanKindConsumer {
			out.Kind = trace.Kind(k)
		}
		out.Flags = failure(s)
		if s.Flags()&0x100 != 0 && s.Flags()&0x200 != 0 {
			out.Flags |= trace.RemoteParent
		}
		out.Op = r.names.Op(out.Service, []byte(completeName(s.Name(), out.Kind, s.Attributes())), out.Kind)
		out.Peer = r.peer(out.Kind, s.Attributes())
		out.Tracepoint = r.names.Value(0, []byte(tracepoint(s.Attributes())))
		r.joins(s, into)
		r.attrs(s.Attributes(), into)
		r.attrs(resource, into)
		r.scope(scope, into)
		into.Traces = append(into.Traces, trace.ID(s.TraceID()))
		into.Spans = append(into.Spans, out)
	}
}

// failure returns the failure flags of s if it failed, with all rules on, or 0.
func failure(s ptrace.Span) trace.Flags {
	status := s.Status().Code()
	if status != ptrace.StatusCodeError && status != ptrace.StatusCodeOk {
		status = ptrace.StatusCodeUnset
		for k, v := range s.Attributes().All() {
			if k == "otel.status_code" && v.Type() == pcommon.ValueTypeStr {
				status = cmp.Or(map[string]ptrace.StatusCode{
					"OK":    ptrace.StatusCodeOk,
					"ERROR": ptrace.StatusCodeError,
				}[v.Str()], status)
			}
		}
	}
	switch status {
	case ptrace.StatusCodeError:
		return trace.ByStatus.Fail()
	case ptrace.StatusCodeOk:
		return 0
	case ptrace.StatusCodeUnset:
	}
	client := s.Kind() == ptrace.SpanKindClient || s.Kind() == ptrace.SpanKindProducer
	code := number(s.Attributes(), 100, 999, "http.response.status_code", "http.status_code")
	grpc := number(s.Attributes(), 0, 16, "rpc.response.status_code",
		"rpc.grpc.status_code", "rpc.connect_rpc.error_code", "grpc.status_code")
	refused := !client && code >= 400
	if grpc > 0 {
		fault := slices.Contains([]int{2, 4, 12, 13, 14, 15}, grpc) || client && grpc != 1
		refused = refused || !fault
		if fault && code < 500 && (!client || code < 400) {
			return trace.ByGRPC.Fail()
		}
	}
	if code >= 500 || client && code >= 400 {
		return trace.ByHTTP.Fail()
	}
	return weakFailure(s, refused, code < 0 && grpc < 0)
}

// weakFailure is like failure, but for a span whose code, if any, indicates no fault.
func weakFailure(s ptrace.Span, refused, unknown bool) trace.Flags {
	var typed, tagged bool
	for k, v := range s.Attributes().All() {
		scalar := v.Type() != pcommon.ValueTypeEmpty && v.Type() < pcommon.ValueTypeMap
		if k != "error.type" && k != "error" || !scalar || v.AsString() == "" {
			continue
		}
		server := s.Kind() != ptrace.SpanKindClient && s.Kind() != ptrace.SpanKindProducer
		refused = refused || server && regexp.MustCompile(`^4[0-9][0-9]$`).MatchString(v.AsString())
		typed = typed || k == "error.type"
		tagged = tagged || k == "error" && !regexp.MustCompile(`(?i)^(false|-?0)$`).MatchString(v.AsString())
	}
	switch {
	case refused:
	case typed:
		return trace.ByErrorType.Fail()
	case tagged:
		return trace.ByErrorTag.Fail()
	default:
		for _, e := range s.Events().All() {
			if escaped := text(e.Attributes(), "exception.escaped"); e.Name() == "exception" &&
				(escaped == "true" || escaped == "" && unknown && s.Kind() != ptrace.SpanKindInternal) {
				return trace.ByException.Fail()
			}
		}
	}
	return 0
}

// number returns the last number from low to high under keys, or −1.
func number(attrs pcommon.Map, low, high int, keys ...string) int {
	last := -1
	for k, v := range attrs.All() {
		n, err := strconv.Atoi(v.AsString())
		if slices.Contains(keys, k) && v.Type() < pcommon.ValueTypeMap && err == nil && low <= n && n <= high {
			last = n
		}
	}
	return last
}

// version adds the service version of resource, which has the given spans.
func (r *reference) version(resource pcommon.Map, spans []trace.Span, into *ingest.Batch) {
	service, version := text(resource, "service.name"), text(resource, "service.version")
	if service == "" || version == "" {
		return
	}
	v := ingest.ServiceVersion{Service: r.names.Symbol([]byte(service)), Version: r.names.Value(0, []byte(version))}
	if n := len(into.Versions); n == 0 || into.Versions[n-1].ServiceVersion != v {
		into.Versions = append(into.Versions, ingest.VersionStart{ServiceVersion: v})
	}
	last := &into.Versions[len(into.Versions)-1]
	for _, s := range spans {
		if last.First == 0 || s.Start < last.First {
			last.First = s.Start
		}
	}
}

func (r *reference) host(resource pcommon.Map) trace.Symbol {
	for _, key := range []string{"host.id", "host.ip", "host.name", "k8s.pod.uid", "service.instance.id"} {
		for k, v := range resource.All() {
			if host := plainText(v); k == key && host != "" && !ingest.IsLocal(host) {
				return r.names.Value(0, []byte(host))
			}
		}
	}
	return 0
}

func (r *reference) joins(s ptrace.Span, into *ingest.Batch) {
	messages := 0
	for _, l := range s.Links().All() {
		if l.TraceID() != s.TraceID() && !l.TraceID().IsEmpty() && !l.SpanID().IsEmpty() && takesMessages(s) &&
			messages < 8 {
			messages++
			id := trace.MessageID(trace.ID(l.TraceID()), spanIDOf(l.SpanID()))
			into.Joins = append(into.Joins, trace.Join{Span: int32(len(into.Spans)), Message: true, Linked: id})
		}
		if l.TraceID() == s.TraceID() && !l.SpanID().IsEmpty() && (marked(l.Attributes()) || marked(s.Attributes())) {
			into.Joins = append(into.Joins, trace.Join{Span: int32(len(into.Spans)), Linked: spanIDOf(l.SpanID())})
		}
	}
}

func takesMessages(s ptrace.Span) bool {
	named := false
	for k, v := range s.Attributes().All() {
		named = named || slices.Contains([]string{
			"messaging.destination.name", "messaging.destination.template", "messaging.destination",
		}, k) &&
			(v.Type() == pcommon.ValueTypeStr || v.Type() == pcommon.ValueTypeBool) && v.AsString() != ""
	}
	return s.Kind() == ptrace.SpanKindConsumer || named && s.Kind() != ptrace.SpanKindProducer
}

func (r *reference) scope(scope pcommon.InstrumentationScope, into *ingest.Batch) {
	r.attrs(scope.Attributes(), into)
	if name := scope.Name(); name != "" {
		m := pcommon.NewMap()
		m.PutStr("otel.scope.name", name)
		r.attrs(m, into)
	}
}

// attrs adds the requested attributes to the span that is added next.
func (r *reference) attrs(attrs pcommon.Map, into *ingest.Batch) {
	for key, v := range attrs.All() {
		wanted := r.keys == nil || r.keys[key]
		if !wanted || key == "" || key == trace.KeyTracepoint || key == trace.KeyJoin {
			continue
		}
		a := trace.Attr{Key: r.names.Value(0, []byte(key)), Span: int32(len(into.Spans))}
		switch v.Type() {
		case pcommon.ValueTypeStr, pcommon.ValueTypeBool:
			a.Text = r.names.Value(0, []byte(v.AsString()))
		case pcommon.ValueTypeInt:
			a.Number, a.Numeric = float64(v.Int()), true
		case pcommon.ValueTypeDouble:
			a.Number, a.Numeric = v.Double(), true
		case pcommon.ValueTypeEmpty, pcommon.ValueTypeMap, pcommon.ValueTypeSlice, pcommon.ValueTypeBytes:
			continue
		}
		into.Attrs = append(into.Attrs, a)
	}
}

// text returns the first non-empty text under key.
func text(attrs pcommon.Map, key string) string {
	for k, v := range attrs.All() {
		if text := plainText(v); k == key && text != "" {
			return text
		}
	}
	return ""
}

// plainText returns the text of v or, for a list like host.ip, of its first element, or "" if it isn't a text.
func plainText(v pcommon.Value) string {
	if v.Type() == pcommon.ValueTypeSlice && v.Slice().Len() > 0 {
		v = v.Slice().At(0)
	}
	if v.Type() == pcommon.ValueTypeStr {
		return v.Str()
	}
	return ""
}

// tracepoint returns the first non-empty text or bool under the key of tracepoints.
func tracepoint(attrs pcommon.Map) string {
	for k, v := range attrs.All() {
		if k == trace.KeyTracepoint && (v.Type() == pcommon.ValueTypeStr || v.Type() == pcommon.ValueTypeBool) &&
			v.AsString() != "" {
			return v.AsString()
		}
	}
	return ""
}

// marked reports whether attrs contain sibyl.join=true.
func marked(attrs pcommon.Map) bool {
	for k, v := range attrs.All() {
		if k == trace.KeyJoin && (v.Type() == pcommon.ValueTypeStr || v.Type() == pcommon.ValueTypeBool) &&
			v.AsString() == "true" {
			return true
		}
	}
	return false
}

func spanIDOf(id pcommon.SpanID) trace.SpanID { return trace.SpanID(binary.BigEndian.Uint64(id[:])) }

// completeName returns name, of a span, completed by its route, path or destination.
func completeName(name string, kind trace.Kind, attrs pcommon.Map) string {
	detail := ""
	switch kind {
	case trace.Server:
		detail = firstText(attrs, nil, "http.route")
		method := regexp.MustCompile(`^(HTTP )?(GET|POST|PUT|DELETE|PATCH|HEAD|OPTIONS|QUERY|TRACE|CONNECT|HTTP)$`)
		if detail == "" && method.MatchString(name) {
			path := regexp.MustCompile(`(?s)^(?:.*?://[^/?#]*)?((?:/[^/?#]*){1,4})`)
			detail = withoutItems(firstText(attrs, path, "url.full", "http.url", "url.path", "http.target"))
		}
	case trace.Consumer:
		detail = firstText(attrs, nil, "messaging.destination.template", "messaging.destination.name",
			"messaging.destination")
	}
	if strings.Contains(name, strings.TrimLeft(detail, "/")) {
		return name
	}
	return joined(" ", name, detail)
}

// withoutItems replaces the segments of a raw path that identify things.
func withoutItems(path string) string {
	segments := strings.Split(path, "/")
	collection := regexp.MustCompile(`^[a-z]{2,}[a-rt-z]s$`)
	action := regexp.MustCompile(`^(search|list|new|all|count|batch|bulk|export|import|me|latest|status|health)$`)
	for i := range segments {
		behind := i > 0 && collection.MatchString(segments[i-1]) &&
			segments[i] != "" && !action.MatchString(segments[i])
		if behind || strings.Count(segments[i], "-")+strings.Count(segments[i], "_") >= 2 {
			segments[i] = "{}"
		}
	}
	return strings.Join(segments, "/")
}

// firstText returns the text of the first of keys or, if pattern is set, the part of the text that matches it. It
// ignores empty and long texts.
func firstText(attrs pcommon.Map, pattern *regexp.Regexp, keys ...string) string {
	for _, key := range keys {
		for k, v := range attrs.All() {
			if k != key || v.Type() != pcommon.ValueTypeStr && v.Type() != pcommon.ValueTypeBool || v.AsString() == "" {
				continue
			}
			text := v.AsString()
			if pattern != nil {
				text = append(pattern.FindStringSubmatch(text), "", "")[1]
			}
			if text != "" && len(text) <= 256 {
				return text
			}
			break // the first value of a key counts
		}
	}
	return ""
}

// peer returns the callee that attrs, of a span, name.
func (r *reference) peer(kind trace.Kind, attrs pcommon.Map) trace.Op {
	first := func(keys ...string) string { return firstText(attrs, nil, keys...) }
	name := func(keys ...string) string { return peerPart(first(keys...)) }
	system := name("db.system.name", "db.system")
	if kind != trace.Client && kind != trace.Producer &&
		(kind != trace.Internal || first("db.system.name", "db.system") == "") {
		return 0
	}
	host := r.peerHost(attrs, first("server.address", "net.peer.name", "http.host"))
	who, what := name("service.peer.name", "peer.service"), []string{name("rpc.service")}
	if who == "" {
		who = joined(" ", system, host)
	}
	if who == "" {
		who, what = what[0], nil
	}
	called := joined(".", append(what, name("db.namespace", "db.name"), name("db.collection.name", "db.sql.table"))...)
	called = joined(" ", called, name("messaging.destination.template", "messaging.destination.name",
		"messaging.destination"), name("url.template"))
	if who == "" && called == "" {
		return 0
	}
	return r.names.Table.Op(r.names.Symbol([]byte(who)), r.names.Symbol([]byte(called)), trace.External)
}

// peerHost returns the name of the host at an address or, without one, in a URL.
func (*reference) peerHost(attrs pcommon.Map, address string) string {
	port := ""
	switch {
	case address != "":
		for _, key := range []string{"server.port", "net.peer.port"} {
			given := false
			for k, v := range attrs.All() {
				switch {
				case k != key || port != "" || given:
				case v.Type() == pcommon.ValueTypeInt && 0 < v.Int() && v.Int() < 1<<16:
					port = strconv.FormatInt(v.Int(), 10)
				case v.Type() == pcommon.ValueTypeDouble && 1 <= v.Double() && v.Double() < 1<<16:
					port = strconv.Itoa(int(v.Double()))
				case v.Type() == pcommon.ValueTypeStr || v.Type() == pcommon.ValueTypeBool:
					if given = v.AsString() != ""; len(v.AsString()) <= 256 {
						port = v.AsString()
					}
				}
			}
		}
	default:
		host := regexp.MustCompile(`(?s)^.*?://([^/?#]*@)?([^/?#]+)`)
		for _, key := range []string{"url.full", "http.url"} {
			given := false
			for k, v := range attrs.All() {
				if k != key || given || v.Type() != pcommon.ValueTypeStr || v.AsString() == "" {
					continue
				}
				given = true
				if m := host.FindStringSubmatch(v.AsString()); address == "" && m != nil && len(m[2]) <= 256 {
					address = m[2]
				}
			}
		}
	}
	if port == "" {
		if m := regexp.MustCompile(`^([^:]*|\[[^\]]*\]):([^:\]]*)$`).FindStringSubmatch(address); m != nil {
			address, port = m[1], m[2]
		}
	}
	if address == "" {
		return ""
	}
	name := address
	if _, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil {
		name = "{ip}"
	} else {
		label, domain, _ := strings.Cut(address, ".")
		m := regexp.MustCompile(`(?s)^(.*?)(-[^-]*[0-9][^-]*)+(-[a-z0-9]{5})?$`).FindStringSubmatch(label)
		if m != nil {
			name = joined(".", m[1]+"-{}", domain)
		}
		name = peerPart(name)
	}
	if !regexp.MustCompile(`^[0-9]+$`).MatchString(port) || len(strings.TrimLeft(port, "0")) > 5 {
		port = ""
	}
	if number, _ := strconv.Atoi(port); name == "" || number == 80 || number == 443 || number >= 1<<16 {
		port = ""
	}
	return joined(":", name, port)
}

func peerPart(s string) string {
	return string(trace.NormalName([]byte(strings.ToLower(strings.ToValidUTF8(s, "\uFFFD"))), nil))
}

// joined joins the parts that aren't empty.
func joined(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), separator)
}
