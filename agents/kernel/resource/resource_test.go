package resource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func TestOfEnvironment(t *testing.T) {
	for _, c := range []struct {
		environment string
		want        map[string]string
	}{
		{"", nil},
		{"PATH=/bin\x00OTEL_SERVICE_NAME=shop\x00", map[string]string{Service: "shop"}},
		{
			"OTEL_RESOURCE_ATTRIBUTES=service.name=cart, service.version=1%2C2 ",
			map[string]string{Service: "cart", "service.version": "1,2"},
		},
		{"OTEL_SERVICE_NAME=shop\x00OTEL_RESOURCE_ATTRIBUTES=service.name=cart", map[string]string{Service: "shop"}},
		{"OTEL_RESOURCE_ATTRIBUTES=service.name=cart,broken", nil},
		{"OTEL_RESOURCE_ATTRIBUTES=service.name=%zz", nil},
		{"HOSTNAME=laptop", nil},
		{
			"HOSTNAME=shop-1\x00KUBERNETES_SERVICE_HOST=10.0.0.1\x00POD_NAMESPACE=eu",
			map[string]string{Pod: "shop-1", Namespace: "eu"},
		},
		{"HOSTNAME=x\x00KUBERNETES_SERVICE_HOST=\x00K8S_POD_NAME=shop-2", map[string]string{Pod: "shop-2"}},
		{
			"HOSTNAME=x\x00KUBERNETES_SERVICE_HOST=\x00OTEL_RESOURCE_ATTRIBUTES=k8s.pod.name=shop-3",
			map[string]string{Pod: "shop-3"},
		},
		{"OTEL_SERVICE_NAME", nil},
		{"OTEL_SERVICE_NAME=shop\x00OTEL_RESOURCE_ATTRIBUTES=x=" +
			strings.Repeat("y", maxValue), map[string]string{Service: "shop"}},
	} {
		if got := ofEnvironment([]byte(c.environment)); !maps.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.environment, got, c.want)
		}
	}
}

func TestContainerID(t *testing.T) {
	id := strings.Repeat("ab", 32)
	for text, want := range map[string]string{
		"0::/system.slice/nginx.service\n":                                          "",
		"0::/system.slice/docker-" + id + ".scope\n":                                id,
		"0::/kubepods/pod1/" + strings.Repeat("cd", 32) + "/cri-" + id + ".scope\n": id,
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "cgroup"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := containerID(folder); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The service of a running process is in its environment. For a process that has ended there is a distinct error.
func TestProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("there is no /proc: ", err)
	}
	c := exec.Command("sleep", "60")
	c.Env = append(os.Environ(), "OTEL_SERVICE_NAME=sleeper")
	if err := c.Start(); err != nil {
		t.Skip("there is no sleep: ", err)
	}
	environ := fmt.Sprintf("/proc/%d/environ", c.Process.Pid)
	for text, err := os.ReadFile(environ); err == nil && len(text) == 0; text, err = os.ReadFile(environ) {
		runtime.Gosched() // exec has started, but not yet set the environment
	}
	got, err := Of("/proc", uint32(c.Process.Pid), false)
	if err != nil || got[Service] != "sleeper" || got[PID] == "" {
		t.Errorf("%v, %v", got, err)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if _, err := Of("/proc", uint32(c.Process.Pid), false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an ended process: %v", err)
	}
}

func message(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

func attribute(key, value string) []byte {
	return append(message(1, []byte(key)), message(2, message(1, []byte(value)))...)
}

// memoryWith returns a file like /proc/PID/mem with a header at 0 and a payload at 64.
func memoryWith(t *testing.T, version, size uint32, published, payloadAt uint64, payload []byte) *os.File {
	t.Helper()
	b := []byte(contextSignature)
	b = binary.NativeEndian.AppendUint32(b, version)
	b = binary.NativeEndian.AppendUint32(b, size)
	b = binary.NativeEndian.AppendUint64(b, published)
	b = binary.NativeEndian.AppendUint64(b, payloadAt)
	b = append(append(b, make([]byte, 64-len(b))...), payload...)
	name := filepath.Join(t.TempDir(), "mem")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestContext(t *testing.T) {
	payload := slices.Concat(
		message(1,
			slices.Concat(message(1, attribute(Service, "shop")), message(1, attribute("service.instance.id", "7")))),
		message(2, attribute("other", "x")))
	size := uint32(len(payload))
	b, err := readPayload(memoryWith(t, contextVersion, size, 9, 64, payload), 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeContext(b)
	if want := map[string]string{Service: "shop", "service.instance.id": "7"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for name, c := range map[string]struct {
		version, size uint32
		published, at uint64
		want          error
	}{
		"another version":     {1, size, 9, 64, errNoContext},
		"being updated":       {contextVersion, size, 0, 64, errUpdating},
		"too large":           {contextVersion, 1 << 30, 9, 64, errNoContext},
		"no address":          {contextVersion, size, 9, 0, errNoContext},
		"a negative address":  {contextVersion, size, 9, 1 << 63, errNoContext},
		"beyond the mappings": {contextVersion, size, 9, 1 << 40, nil},
	} {
		if b, err := readPayload(memoryWith(t, c.version, c.size, c.published, c.at, payload), 0); err == nil ||
			b != nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestFindContext(t *testing.T) {
	for line, want := range map[string]int64{
		"7f00-7f10 r--p 00000000 00:00 0                          [anon:OTEL_CTX]":           0x7f00,
		"7f20-7f30 rw-p 00000000 00:01 12345                      /memfd:OTEL_CTX (deleted)": 0x7f20,
		"7f30-7f40 rw-p 00000000 00:00 0                          [anon_shmem:OTEL_CTX]":     0x7f30,
		"7f40-7f50 rw-p 00000000 00:00 0                          [heap]":                    0,
		"7f40-7f50 rw-p 00000000 00:01 12345                      /tmp/OTEL_CTX":             0,
		"7f40-7f50 rw-p 00000000 00:00 0                          [anon:OTEL_CTX2]":          0,
	} {
		name := filepath.Join(t.TempDir(), "maps")
		if err := os.WriteFile(name, []byte("00-10 r--p 0 00:00 0\n"+line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := findContext(name); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %x, %v", line, got, err)
		}
	}
}

// FuzzDecodeContext checks that hostile processes can't crash the agent.
func FuzzDecodeContext(f *testing.F) {
	f.Add(message(1, message(1, attribute(Service, "shop"))))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, payload []byte) {
		if got, err := decodeContext(payload); (got == nil) != (err != nil) {
			t.Fatalf("%v with error %v", got, err)
		}
	})
}
