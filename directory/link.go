package directory

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"

	"github.com/sibyl-trace/sibyl/trace"
)

// URL is a link with the name of its target.
type URL struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Link is a template of links to traces, or to pages about a service.
type Link struct {
	name, template string
	kind           *linkKind
	services       []string // patterns for the services that have such a page; empty: all services
}

// Request is the target of a link: a trace, or a service during an incident. All fields may be zero, except Trace for a
// link to a trace.
type Request struct {
	Trace              trace.ID
	Service, Operation string // of the trace's entry span, or the suspect and its operation with the most evidence
	Instance           string // instance that most of the cost of a suspect comes from
	Incident           string // ID
	Start, End         trace.Nanos

	// Conditions of a search for traces. Service and Operation then refer to a single span.
	Longer, Shorter time.Duration // of the request; 0 is unlimited
	Failed          bool          // the span is an error
	Attributes      [][2]string   // keys and values of the span; an empty value matches any value
}

// AddInstance sets the instance to the value of an attribute, unless the instance is already set or the value is a
// version.
func (r *Request) AddInstance(key, value string) {
	if r.Instance == "" && key != "service.version" {
		r.Instance = value
	}
}

// linkKind is a kind of link. It defines the placeholders, which templates contain in braces, and their values.
type linkKind struct {
	target       string // for error messages
	required     string // placeholder that templates must contain, if any
	placeholders map[string]func(r *Request) string
}

var (
	traceLinks = &linkKind{
		target:   "trace",
		required: "{trace_id}",
		placeholders: withTimes(map[string]func(r *Request) string{
			"trace_id":  func(r *Request) string { return r.Trace.String() },
			"service":   func(r *Request) string { return escape(r.Service) },
			"operation": func(r *Request) string { return escape(r.Operation) },
		}),
	}
	serviceLinks = &linkKind{target: "service", placeholders: withTimes(map[string]func(r *Request) string{
		"service":   func(r *Request) string { return escape(r.Service) },
		"operation": func(r *Request) string { return escape(r.Operation) },
		"instance":  func(r *Request) string { return escape(r.Instance) },
		"incident":  func(r *Request) string { return escape(r.Incident) },
	})}
	searchLinks = &linkKind{target: "search", placeholders: withTimes(map[string]func(r *Request) string{
		"service":      func(r *Request) string { return escape(r.Service) },
		"operation":    func(r *Request) string { return escape(r.Operation) },
		"min_duration": func(r *Request) string { return duration(r.Longer) },
		"max_duration": func(r *Request) string { return duration(r.Shorter) },
		"tags":         func(r *Request) string { return escapeAll(r.jaegerTags()) },
		"traceql":      func(r *Request) string { return escapeAll(r.traceQL()) },
		"traceql_json": func(r *Request) string { return escapeAll(inJSON(r.traceQL())) },
		"honeycomb":    func(r *Request) string { return escapeAll(r.honeycomb()) },
	})}
)

// withTimes adds the placeholders for times, which all kinds of link have, to placeholders and returns the result. Ends
// are rounded up.
func withTimes(placeholders map[string]func(r *Request) string) map[string]func(r *Request) string {
	maps.Copy(placeholders, map[string]func(r *Request) string{
		"start_s":  func(r *Request) string { return count(r.Start, time.Second) },
		"start_ms": func(r *Request) string { return count(r.Start, time.Millisecond) },
		"start_us": func(r *Request) string { return count(r.Start, time.Microsecond) },
		"start_ns": func(r *Request) string { return count(r.Start, time.Nanosecond) },
		"end_s":    func(r *Request) string { return count(r.End+trace.Nanos(time.Second-1), time.Second) },
		"end_ms":   func(r *Request) string { return count(r.End+trace.Nanos(time.Millisecond-1), time.Millisecond) },
		"end_us":   func(r *Request) string { return count(r.End+trace.Nanos(time.Microsecond-1), time.Microsecond) },
		"end_ns":   func(r *Request) string { return count(r.End, time.Nanosecond) },
	})
	return placeholders
}

// placeholder matches placeholders. Other braces are literal, as in queries of Grafana.
var placeholder = regexp.MustCompile(`\{[A-Za-z][A-Za-z0-9_-]*\}`)

// NewLink returns a Link to traces. It returns an error unless template is an http or https URL that contains
// {trace_id}, contains only known placeholders, and has no placeholder in its host.
func NewLink(name, template string) (Link, error) { return newLink(traceLinks, name, template) }

// NewServiceLink returns a Link to a page about each service that matches one of the patterns, or about every service
// if no pattern is given. It returns an error unless template is an http or https URL without a placeholder in its
// host.
func NewServiceLink(name, template string, services ...string) (Link, error) {
	l, err := newLink(serviceLinks, name, template)
	l.services = services
	return l, err
}

// NewSearchLink returns a Link to a search for traces in a backend. It returns an error unless template is an http or
// https URL without a placeholder in its host.
func NewSearchLink(name, template string) (Link, error) { return newLink(searchLinks, name, template) }

func newLink(kind *linkKind, name, template string) (Link, error) {
	for _, p := range placeholder.FindAllString(template, -1) {
		if _, ok := kind.placeholders[p[1:len(p)-1]]; !ok {
			nearest := kind.nearest(p[1 : len(p)-1])
			return Link{}, fmt.Errorf("link %s: there is no placeholder %s; did you mean {%s}?", name, p, nearest)
		}
	}
	if !strings.Contains(template, kind.required) {
		return Link{}, fmt.Errorf("link %s: want %s in the URL", name, kind.required)
	}
	u, err := url.Parse(placeholder.ReplaceAllLiteralString(template, "0"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return Link{}, fmt.Errorf("link %s: want a URL that starts with http:// or https://", name)
	}
	other, err := url.Parse(placeholder.ReplaceAllLiteralString(template, "1"))
	if err != nil || other.Host != u.Host || other.User.String() != u.User.String() {
		return Link{}, fmt.Errorf("link %s: the host cannot depend on the %s", name, kind.target)
	}
	return Link{name: trace.Clean(name), template: template, kind: kind}, nil
}

// nearest returns the placeholder that is most similar to name, which is a mistyped placeholder.
func (k *linkKind) nearest(name string) string {
	return slices.MinFunc(slices.Sorted(maps.Keys(k.placeholders)), func(a, b string) int {
		return levenshtein.ComputeDistance(name, a) - levenshtein.ComputeDistance(name, b)
	})
}

// URL returns the link to the target r. Names from traces are escaped so that they are valid in every part of a URL.
func (l Link) URL(r *Request) URL {
	value := func(p string) string { return l.kind.placeholders[p[1:len(p)-1]](r) }
	return URL{l.name, placeholder.ReplaceAllStringFunc(l.template, value)}
}

// LinksTo returns one URL per link, each to the target r.
func LinksTo(links []Link, r *Request) []URL {
	all := []URL{}
	for _, l := range links {
		all = append(all, l.URL(r))
	}
	return all
}

func count(t trace.Nanos, unit time.Duration) string {
	return strconv.FormatInt(int64(t)/unit.Nanoseconds(), 10)
}

// escape escapes all characters with a meaning in a path, a query or a fragment.
func escape(s string) string { return escapeAll(trace.Clean(s)) }

// escapeAll is like escape, but doesn't clean or shorten s, which must already be clean.
func escapeAll(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
