package tracepoint

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// Variable is a value that is captured, as an attribute of the nearest span that is on, only when asked for.
type Variable[T int | float64 | string | bool] struct{ point *Point }

// Int returns the variable of the given name: a number. The same name is the same variable. It panics unless name is a
// printable text of 1 to 128 bytes.
func Int(name string, options ...PointOption) *Variable[int] { return Default.Int(name, options...) }

// Float is [Int] for fractions.
func Float(name string, options ...PointOption) *Variable[float64] {
	return Default.Float(name, options...)
}

// String is [Int] for texts.
func String(name string, options ...PointOption) *Variable[string] {
	return Default.String(name, options...)
}

// Bool is [Int] for truth values.
func Bool(name string, options ...PointOption) *Variable[bool] { return Default.Bool(name, options...) }

// Int is [Int], in r.
func (r *Registry) Int(name string, options ...PointOption) *Variable[int] {
	return variable[int](r, name, options)
}

// Float is [Float], in r.
func (r *Registry) Float(name string, options ...PointOption) *Variable[float64] {
	return variable[float64](r, name, options)
}

// String is [String], in r.
func (r *Registry) String(name string, options ...PointOption) *Variable[string] {
	return variable[string](r, name, options)
}

// Bool is [Bool], in r.
func (r *Registry) Bool(name string, options ...PointOption) *Variable[bool] {
	return variable[bool](r, name, options)
}

func variable[T int | float64 | string | bool](r *Registry, name string, options []PointOption) *Variable[T] {
	return &Variable[T]{r.point(pointKey{kind: protocol.VariablePoint, name: name}, options)}
}

// Point returns the tracepoint that switches the variable.
func (v *Variable[T]) Point() *Point { return v.point }

// Set captures x if the variable is on for the request of ctx.
func (v *Variable[T]) Set(ctx context.Context, x T) {
	if s := v.point.on.Load(); s != nil {
		v.capture(ctx, s, x)
	}
}

func (v *Variable[T]) capture(ctx context.Context, s *switches, x T) {
	p := v.point
	a := p.registry.around(spanOf(ctx))
	if a.request == nil {
		sc := a.span.SpanContext()
		if !sc.IsValid() || sc.IsRemote() {
			return
		}
		a.request = p.registry.requestOf(sc, &entry{name: p.name, kind: trace.SpanKindInternal})
	}
	if !a.request.on(s) {
		return
	}
	n := p.hits.Add(1)
	if !a.span.IsRecording() {
		p.drops.Add(1)
		return
	}
	began := time.Time{}
	if n%measureEvery == 1 {
		began = time.Now()
	}
	kv := attributeOf(p.name, x)
	a.span.SetAttributes(kv)
	if !began.IsZero() {
		p.measured.add(time.Since(began), sizeOf(kv))
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
	panic("tracepoint: no other type is allowed")
}
