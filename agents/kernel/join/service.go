package join

import (
	"maps"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/kernel/resource"
)

// Service is the resource of a process's spans.
type Service struct {
	Name       string
	Attributes []Attribute // ascending by key; include service.name
}

// Attribute is an attribute of a resource.
type Attribute struct{ Key, Value string }

// readService returns the service of a process below proc, with host.name, or nil if the name of the service is
// unknown. If name is not empty, it is used for a process that doesn't name its service. See [resource.Of] for quick.
// The error wraps [fs.ErrNotExist] if the process has ended.
func readService(proc string, pid uint32, name, host string, quick bool) (*Service, error) {
	attributes, err := resource.Of(proc, pid, quick)
	if err != nil {
		return nil, err
	}
	for key, otherwise := range map[string]string{resource.Service: name, resource.Host: host} {
		if attributes[key] == "" && otherwise != "" {
			attributes[key] = otherwise
		}
	}
	return NewService(attributes), nil
}

// NewService returns the service with the given attributes, or nil if the name is missing.
func NewService(attributes map[string]string) *Service {
	valid := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") } // required by protocols
	s := &Service{Name: valid(attributes[resource.Service])}
	if s.Name == "" {
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(attributes)) {
		s.Attributes = append(s.Attributes, Attribute{valid(k), valid(attributes[k])})
	}
	return s
}
