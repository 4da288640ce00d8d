package join

import (
	"bytes"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Service is the resource of a process's spans.
type Service struct {
	Name       string
	Attributes []Attribute // ascending by key; with service.name and host.name
}

// Attribute is an attribute of a resource.
type Attribute struct{ Key, Value string }

// Keys of attributes.
const (
	serviceName = "service.name"
	hostName    = "host.name"
)

// maxEnvironment bounds the environment that is read.
const maxEnvironment = 1 << 20

// readEnvironment returns the attributes of a process's resource, as its environment describes them to the
// OpenTelemetry SDK; none if it is unreadable.
func (j *Joiner) readEnvironment(pid uint32) map[string]string {
	f, err := os.Open(j.path(pid, "environ"))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // read only
	text, err := io.ReadAll(io.LimitReader(f, maxEnvironment))
	if err != nil {
		return nil
	}
	return parseEnvironment(text)
}

// serviceFrom returns the service with the attributes; nil if its name is unknown.
func (j *Joiner) serviceFrom(attributes map[string]string) *Service {
	all := map[string]string{hostName: j.host}
	if j.service != "" {
		all[serviceName] = j.service
	}
	maps.Copy(all, attributes)
	return NewService(all)
}

// NewService returns the service with the given attributes; nil if they lack its name.
func NewService(attributes map[string]string) *Service {
	s := &Service{Name: attributes[serviceName]}
	if s.Name == "" {
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(attributes)) {
		s.Attributes = append(s.Attributes, Attribute{k, attributes[k]})
	}
	return s
}

// parseEnvironment returns the attributes that an environment describes. As in SDKs, OTEL_SERVICE_NAME overrides, and
// OTEL_RESOURCE_ATTRIBUTES counts as a whole or not at all.
func parseEnvironment(text []byte) map[string]string {
	var name, list string
	for v := range bytes.SplitSeq(text, []byte{0}) {
		key, value, _ := strings.Cut(string(v), "=")
		switch key {
		case "OTEL_SERVICE_NAME":
			name = value
		case "OTEL_RESOURCE_ATTRIBUTES":
			list = value
		}
	}
	attributes := parseAttributes(list)
	if name != "" {
		attributes[serviceName] = name
	}
	return attributes
}

func parseAttributes(list string) map[string]string {
	attributes := make(map[string]string)
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil {
			return make(map[string]string)
		}
		attributes[strings.TrimSpace(key)] = value
	}
	return attributes
}
