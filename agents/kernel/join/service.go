package join

import (
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/agents/kernel/resource"
)

// Service is the resource of a process's spans.
type Service struct {
	Name       string
	Attributes []Attribute // ascending by key; with service.name and host.name
}

// Attribute is an attribute of a resource.
type Attribute struct{ Key, Value string }

// NewService returns the service with the given attributes; nil if they lack its name.
func NewService(attributes map[string]string) *Service {
	s := &Service{Name: attributes[resource.Service]}
	if s.Name == "" {
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(attributes)) {
		s.Attributes = append(s.Attributes, Attribute{k, attributes[k]})
	}
	return s
}

// findService returns the service of a process; nil if its name is unknown.
func (j *Joiner) findService(pid uint32) *Service {
	all := map[string]string{resource.Host: j.host}
	if j.service != "" {
		all[resource.Service] = j.service
	}
	if attributes, err := resource.Of(j.proc, pid); err == nil {
		maps.Copy(all, attributes)
	}
	return NewService(all)
}
