// Package resource reads the OpenTelemetry resource of running processes, that is, the attributes that identify them
// in their own telemetry. It uses the process context that an SDK publishes (OTEP 4719), the environment, and the
// cgroup.
package resource

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Keys of attributes.
const (
	Service     = "service.name"
	Pod         = "k8s.pod.name"
	Namespace   = "k8s.namespace.name"
	ContainerID = "container.id"
	Host        = "host.name"
	PID         = "process.pid"
)

// maxEnvironment limits the part of a process's environment that is read, in bytes.
const maxEnvironment = 1 << 20

// maxValue limits the length of variables, in bytes, because each batch of spans carries them.
const maxValue = 16 << 10

// Of returns the attributes of a process. proc is the mount point of the proc file system. The result lacks attributes
// that cannot be read, and lacks [Service] if the process has no service name. Of returns an error that wraps
// [fs.ErrNotExist] if the process has ended, or another error if the process keeps updating its context. If quick is
// true and the environment contains no service name, Of returns only attributes from the environment, because looking
// for the context takes long.
func Of(proc string, pid uint32, quick bool) (map[string]string, error) {
	folder := filepath.Join(proc, strconv.FormatUint(uint64(pid), 10))
	environment, err := readAtMost(filepath.Join(folder, "environ"), maxEnvironment)
	switch {
	case errors.Is(err, fs.ErrPermission):
	case err != nil:
		return nil, fmt.Errorf("read the environment of process %d: %w", pid, err)
	}
	attributes := ofEnvironment(environment)
	if quick && attributes[Service] == "" {
		return attributes, nil
	}
	if id := containerID(folder); id != "" {
		attributes[ContainerID] = id
	}
	switch published, err := readContext(folder); {
	case errors.Is(err, errUpdating):
		return nil, fmt.Errorf("process %d: %w", pid, err) // the name of its former environment would be wrong
	case err == nil:
		maps.Copy(attributes, published)
	}
	attributes[PID] = strconv.FormatUint(uint64(pid), 10)
	return attributes, nil
}

// ofEnvironment returns the attributes that an environment, in the kernel's format of zero-terminated variables,
// contains. It also looks for the name of the pod, which is often in a variable or in the host name.
func ofEnvironment(environment []byte) map[string]string {
	variables := make(map[string]string)
	for line := range bytes.SplitSeq(environment, []byte{0}) {
		if name, value, ok := strings.Cut(string(line), "="); ok && relevant[name] && len(value) <= maxValue {
			variables[name] = value
		}
	}
	attributes := make(map[string]string)
	set := func(key string, names ...string) {
		for _, name := range names {
			if v := variables[name]; v != "" && attributes[key] == "" {
				attributes[key] = v
			}
		}
	}
	if _, ok := variables["KUBERNETES_SERVICE_HOST"]; ok {
		set(Pod, "K8S_POD_NAME", "POD_NAME", "HOSTNAME")
		set(Namespace, "K8S_NAMESPACE_NAME", "POD_NAMESPACE")
	}
	maps.Copy(attributes, parseAttributes(variables["OTEL_RESOURCE_ATTRIBUTES"]))
	if name := variables["OTEL_SERVICE_NAME"]; name != "" {
		attributes[Service] = name
	}
	return attributes
}

var relevant = map[string]bool{
	"OTEL_SERVICE_NAME": true, "OTEL_RESOURCE_ATTRIBUTES": true, "KUBERNETES_SERVICE_HOST": true, "HOSTNAME": true,
	"K8S_POD_NAME": true, "POD_NAME": true, "K8S_NAMESPACE_NAME": true, "POD_NAMESPACE": true,
}

// parseAttributes parses OTEL_RESOURCE_ATTRIBUTES: key=value pairs with percent-encoded values, separated by commas. It
// ignores a malformed list completely, as the specification requires.
func parseAttributes(text string) map[string]string {
	attributes := make(map[string]string)
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !ok || key == "" || err != nil {
			return nil
		}
		attributes[key] = value
	}
	return attributes
}

// containerPattern matches the ID of a container in the path of its cgroup, as written by container engines.
var containerPattern = regexp.MustCompile(`[0-9a-f]{64}`)

// containerID returns the ID of the container that a process runs in, or "" if it is unknown.
func containerID(folder string) string {
	text, err := readAtMost(filepath.Join(folder, "cgroup"), 64<<10)
	if err != nil {
		return ""
	}
	ids := containerPattern.FindAllString(string(text), -1)
	if len(ids) == 0 {
		return ""
	}
	return ids[len(ids)-1]
}

// readAtMost returns at most the first limit bytes of a file.
func readAtMost(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit))
	return data, errors.Join(err, f.Close())
}
