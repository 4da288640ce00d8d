package notify

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

// Link is a template of links to traces in a tracing backend.
type Link struct {
	name, template string
}

// Request is the target of a link. All fields but Trace may be empty.
type Request struct {
	Trace              trace.ID
	Service, Operation string // of the entry span
	Start, End         trace.Nanos
}

// placeholders are the placeholders of templates, written in braces, with their values.
var placeholders = map[string]func(r *Request) string{
	"trace_id":  func(r *Request) string { return r.Trace.String() },
	"service":   func(r *Request) string { return escape(r.Service) },
	"operation": func(r *Request) string { return escape(r.Operation) },
	"start_s":   func(r *Request) string { return count(r.Start, time.Second) },
	"start_ms":  func(r *Request) string { return count(r.Start, time.Millisecond) },
	"start_us":  func(r *Request) string { return count(r.Start, time.Microsecond) },
	"start_ns":  func(r *Request) string { return count(r.Start, time.Nanosecond) },
	"end_s":     func(r *Request) string { return count(r.End+trace.Nanos(time.Second-1), time.Second) },
	"end_ms":    func(r *Request) string { return count(r.End+trace.Nanos(time.Millisecond-1), time.Millisecond) },
	"end_us":    func(r *Request) string { return count(r.End+trace.Nanos(time.Microsecond-1), time.Microsecond) },
	"end_ns":    func(r *Request) string { return count(r.End, time.Nanosecond) },
}

// placeholder matches placeholders. Other braces are literal, as in queries of Grafana.
var placeholder = regexp.MustCompile(`\{[A-Za-z][A-Za-z0-9_-]*\}`)

// NewLink returns a Link. It returns an error unless template is a URL of http or https that contains {trace_id} and
// has no placeholder in its host.
func NewLink(name, template string) (Link, error) {
	for _, p := range placeholder.FindAllString(template, -1) {
		if _, ok := placeholders[p[1:len(p)-1]]; !ok {
			return Link{}, fmt.Errorf("link %s: there is no placeholder %s; did you mean {%s}?", name, p, nearest(p[1:len(p)-1]))
		}
	}
	if !strings.Contains(template, "{trace_id}") {
		return Link{}, fmt.Errorf("link %s: want {trace_id} in the URL", name)
	}
	u, err := url.Parse(placeholder.ReplaceAllLiteralString(template, "0"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return Link{}, fmt.Errorf("link %s: want a URL that starts with http:// or https://", name)
	}
	if v, err := url.Parse(placeholder.ReplaceAllLiteralString(template, "1")); err != nil || v.Host != u.Host || v.User.String() != u.User.String() {
		return Link{}, fmt.Errorf("link %s: the host cannot depend on the trace", name)
	}
	return Link{clean(name), template}, nil
}

func nearest(name string) string {
	return slices.MinFunc(slices.Sorted(maps.Keys(placeholders)), func(a, b string) int {
		return levenshtein.ComputeDistance(name, a) - levenshtein.ComputeDistance(name, b)
	})
}

// URL returns the link to a request. Names from traces are escaped for every part of a URL.
func (l Link) URL(r *Request) URL {
	return URL{l.name, placeholder.ReplaceAllStringFunc(l.template, func(p string) string { return placeholders[p[1:len(p)-1]](r) })}
}

// LinksTo returns the links to a request in all backends.
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
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(clean(s)), "+", "%20") }
