// Package directory holds the configured owners of services, and the configured links to traces, logs and runbooks.
package directory

import (
	"slices"
	"strings"
)

// Owner is a team that is responsible for some services.
type Owner struct {
	Name     string   `json:"name"`
	Contact  string   `json:"contact,omitempty"` // how to reach it, such as a channel
	Services []string `json:"-"`                 // names; * matches any text
	Route    []string `json:"-"`                 // names of the endpoints that receive its incidents
}

// String returns the name and, if it is known, the contact. It returns "" for nil.
func (o *Owner) String() string {
	switch {
	case o == nil:
		return ""
	case o.Contact == "":
		return o.Name
	}
	return o.Name + " (" + o.Contact + ")"
}

// Directory holds the configured owners of services, and templates of links. It is immutable.
type Directory struct {
	Owners   []Owner // the first that matches a service owns it
	Traces   []Link  // templates of links to a trace
	Searches []Link  // templates of links to a search for traces
	Services []Link  // templates of links to the logs, metrics and runbooks of a service
}

// maxServiceLinks is the maximum number of links for one service.
const maxServiceLinks = 10

// Owner returns the owner of a service, or nil if the service has no owner.
func (d *Directory) Owner(service string) *Owner {
	i := slices.IndexFunc(d.Owners, func(o Owner) bool { return matchesAny(o.Services, service) })
	if i < 0 {
		return nil
	}
	return &d.Owners[i]
}

// ServiceLinks returns the first maxServiceLinks links that apply to the service of r.
func (d *Directory) ServiceLinks(r *Request) []URL {
	links := []URL{}
	for _, l := range d.Services {
		if len(links) < maxServiceLinks && (len(l.services) == 0 || matchesAny(l.services, r.Service)) {
			links = append(links, l.URL(r))
		}
	}
	return links
}

// IsRouted reports whether any owner routes incidents to the given endpoint. Such an endpoint receives no other
// incidents.
func (d *Directory) IsRouted(endpoint string) bool {
	return slices.ContainsFunc(d.Owners, func(o Owner) bool { return slices.Contains(o.Route, endpoint) })
}

func matchesAny(patterns []string, service string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Matches(p, service) })
}

// Matches reports whether name matches pattern, in which an asterisk matches any text.
func Matches(pattern, name string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	name, found := strings.CutPrefix(name, head)
	for found {
		part, more, again := strings.Cut(rest, "*")
		if !again {
			return strings.HasSuffix(name, rest)
		}
		_, name, found = strings.Cut(name, part)
		rest = more
	}
	return false
}
