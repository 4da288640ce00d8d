package tracepoint

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// Variable is a tracepoint that captures a value as an attribute of the nearest enabled span.
type Variable[T int | float64 | string | bool] struct{ point *Point }

// Int returns the integer variable with the given name, and registers it if necessary. It panics unless name consists
// of 1 to 128 bytes of printable characters.
func Int(name string, options ...PointOption) *Variable[int] { return Default.Int(name, options...) }

// Float is like [Int] for floating-point numbers.
func Float(name string, options ...PointOption) *Variable[float64] {
	return Default.Float(name, options...)
}

// String is like [Int] for strings.
func String(name string, options ...PointOption) *Variable[string] {
	return Default.String(name, options...)
}

// Bool is like [Int] for booleans.
func Bool(name string, options ...PointOption) *Variable[bool] { return Default.Bool(name, options...) }

// Int is like [Int], but for the tracepoints of r.
func (r *Registry) Int(name string, options ...PointOption) *Variable[int] {
	return variable[int](r, name, options)
}

// Float is like [Float], but for the tracepoints of r.
func (r *Registry) Float(name string, options ...PointOption) *Variable[float64] {
	return variable[float64](r, name, options)
}

// String is like [String], but for the tracepoints of r.
func (r *Registry) String(name string, options ...PointOption) *Variable[string] {
	return variable[string](r, name, options)
}

// Bool is like [Bool], but for the tracepoints of r.
func (r *Registry) Bool(name string, options ...PointOption) *Variable[bool] {
	return variable[bool](r, name, options)
}

func variable[T int | float64 | string | bool](r *Registry, name string, options []PointOption) *Variable[T] {
	return &Variable[T]{r.point(pointKey{kind: protocol.VariablePoint, name: name}, options)}
}

// Point returns the tracepoint of the variable.
func (v *Variable[T]) Point() *Point { return v.point }

// Set captures x if the variable is enabled for the request of ctx.
func (v *Variable[T]) Set(ctx context.Context, x T) {
	if a := v.point.active.Load(); a != nil {
		v.capture(ctx, a, x)
	}
}

func (v *Variable[T]) capture(ctx context.Context, a *activation, x T) {
	p := v.point
	parent := p.registry.parentOf(spanOf(ctx))
	if parent.request == nil {
		sc := parent.span.SpanContext()
		if !sc.IsValid() || sc.IsRemote() {
			return
		}
		parent.request = p.registry.requestOf(sc, &entrySpan{name: p.name, kind: trace.SpanKindInternal})
	}
	if !parent.request.enables(a) {
		return
	}
	n := p.hits.Add(1)
	if !parent.span.IsRecording() {
		p.drops.Add(1)
		return
	}
	start := time.Time{}
	if n%measureEvery == 1 {
		start = time.Now()
	}
	kv := attributeOf(p.name, x)
	parent.span.SetAttributes(kv)
	if !start.IsZero() {
		p.measured.add(time.Since(start), attributeBytes(kv))
	}
}

func attributeOf[T int | float64 | string | bool](name string, x T) attribute.KeyValue {
	switch x := any(x).(type) {
	case int:
		return attribute.Int(name, x)
	case float64:
		return attribute.Float64(name, x)
	case string:
		return attribute.String(name, x)
	case bool:
		return attribute.Bool(name, x)
	}
	panic("tracepoint: unreachable: the constraint allows no other type")
}
