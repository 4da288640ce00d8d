package directory

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Queries of searches for traces, in the languages of tracing backends. Values come from people and from traces, so
// each is quoted for its language.

// duration returns d as Jaeger and TraceQL write it, or "" if it isn't positive.
func duration(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return strconv.FormatInt(d.Microseconds(), 10) + "us"
}

// jaegerTags returns the conditions on attributes as the tags of a search in Jaeger. It omits conditions that accept
// any value, because Jaeger can't search for them. It returns "" if no condition is left.
func (r *Request) jaegerTags() string {
	tags := make(map[string]string)
	for _, a := range r.Attributes {
		if a[1] != "" {
			tags[a[0]] = a[1]
		}
	}
	if r.Failed {
		tags["error"] = "true"
	}
	if len(tags) == 0 {
		return ""
	}
	return encode(tags)
}

// traceQL returns the search as a query of Grafana Tempo.
func (r *Request) traceQL() string {
	var all []string
	add := func(text ...string) { all = append(all, strings.Join(text, "")) }
	if r.Service != "" {
		add("resource.service.name = ", quote(r.Service))
	}
	if r.Operation != "" {
		add("name = ", quote(r.Operation))
	}
	if r.Failed {
		add("status = error")
	}
	for _, a := range r.Attributes {
		name := "." + attributeName(a[0])
		if a[1] == "" {
			add(name, " != nil")
			continue
		}
		// Values have types in TraceQL, but Sibyl only knows their texts.
		if _, err := strconv.ParseFloat(a[1], 64); err == nil || a[1] == "true" || a[1] == "false" {
			add("(", name, " = ", quote(a[1]), " || ", name, " = ", a[1], ")")
			continue
		}
		add(name, " = ", quote(a[1]))
	}
	if r.Longer > 0 {
		add("traceDuration >= ", duration(r.Longer))
	}
	if r.Shorter > 0 {
		add("traceDuration < ", duration(r.Shorter))
	}
	if len(all) == 0 {
		return "{}"
	}
	return "{ " + strings.Join(all, " && ") + " }"
}

// quote returns s as a string literal in TraceQL.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(trace.Clean(s)) + `"`
}

// attributeName returns the name of an attribute in TraceQL, quoted if it contains characters other than letters,
// digits, dots, underscores and hyphens.
func attributeName(key string) string {
	if strings.Trim(strings.ToLower(key), "abcdefghijklmnopqrstuvwxyz0123456789._-") == "" {
		return key
	}
	return quote(key)
}

// honeycomb returns the search as a query specification of Honeycomb. It filters by the duration of the root span.
func (r *Request) honeycomb() string {
	type filter struct {
		Column string `json:"column"`
		Op     string `json:"op"`
		Value  any    `json:"value,omitempty"`
	}
	filters := []filter{}
	add := func(column, op string, value any) { filters = append(filters, filter{column, op, value}) }
	if r.Service != "" {
		add("service.name", "=", trace.Clean(r.Service))
	}
	if r.Operation != "" {
		add("name", "=", trace.Clean(r.Operation))
	}
	if r.Failed {
		add("error", "=", true)
	}
	for _, a := range r.Attributes {
		if a[1] == "" {
			add(trace.Clean(a[0]), "exists", nil)
			continue
		}
		add(trace.Clean(a[0]), "=", trace.Clean(a[1]))
	}
	if r.Longer > 0 {
		add("root.duration_ms", ">=", float64(r.Longer)/float64(time.Millisecond))
	}
	if r.Shorter > 0 {
		add("root.duration_ms", "<", float64(r.Shorter)/float64(time.Millisecond))
	}
	return encode(struct {
		Start   int64    `json:"start_time"`
		End     int64    `json:"end_time"`
		Filters []filter `json:"filters"`
	}{int64(r.Start) / int64(time.Second), (int64(r.End) + int64(time.Second) - 1) / int64(time.Second), filters})
}

// inJSON returns s escaped for use between the quotes of a JSON string.
func inJSON(s string) string {
	text := encode(s)
	return text[1 : len(text)-1]
}

// encode returns x as JSON. x must consist of texts and numbers, so that encoding can't fail.
func encode(x any) string {
	text, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	return string(text)
}
