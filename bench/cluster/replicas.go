package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// replica is a sibyl serve process. A process that is alone is one, too.
type replica struct {
	program string
	dir     string
	args    []string
	api     string // address
	otlp    string // address of OTLP over HTTP
	cmd     *exec.Cmd
	cpu     time.Duration // of earlier processes
}

// newReplica returns a replica with its data in dir. It isn't started.
func newReplica(ctx context.Context, program, dir string, args ...string) (*replica, error) {
	r := &replica{program: program, dir: dir, args: args}
	for _, address := range []*string{&r.api, &r.otlp} {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		*address = fmt.Sprint("127.0.0.1:", port)
	}
	return r, os.MkdirAll(dir, 0o755)
}

// start starts the process. Its log goes to a file beside the data.
func (r *replica) start(ctx context.Context) error {
	log, err := os.OpenFile(r.dir+".log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has a descriptor of its own
	r.cmd = exec.CommandContext(ctx, r.program, append([]string{
		"serve", "--data-dir", r.dir, "--http", r.api, "--otlp-http", r.otlp, "--otlp-grpc", "off",
	}, r.args...)...)
	r.cmd.Env = []string{"HOME=" + filepath.Dir(r.dir)}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	r.cmd.Stderr = log
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("start a replica: %w", err)
	}
	return nil
}

// signal sends a signal to the process.
func (r *replica) signal(s syscall.Signal) { _ = r.cmd.Process.Signal(s) } // fails if it has exited

// end sends s, which must end the process, and waits for it.
func (r *replica) end(s syscall.Signal) {
	r.signal(s)
	_ = r.cmd.Wait() // reports the signal
	r.cpu += r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime()
}

// get reads a path of the API into x.
func (r *replica) get(ctx context.Context, path string, x any) error {
	body, status, err := r.read(ctx, path)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", path, status, body)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(body, x)
}

// read returns the answer to a request for path.
func (r *replica) read(ctx context.Context, path string) (body []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.api+path, nil)
	if err != nil {
		return nil, 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err = io.ReadAll(answer.Body)
	return body, answer.StatusCode, err
}

// ready reports whether the replica leads.
func (r *replica) ready(ctx context.Context) bool {
	_, status, err := r.read(ctx, "/readyz")
	return err == nil && status == http.StatusOK
}

// metric returns the value of a metric without labels, or 0 if the replica doesn't answer.
func (r *replica) metric(ctx context.Context, name string) float64 {
	body, _, err := r.read(ctx, "/metrics")
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(strings.NewReader(string(body))); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			x, _ := strconv.ParseFloat(value, 64) // 0 if it is not a number
			return x
		}
	}
	return 0
}

// counted returns the number of requests in the statistics.
func (r *replica) counted(ctx context.Context) (n int64, err error) {
	var list contract.GroupList
	if err := r.get(ctx, "/api/v1/groups?limit=1000", &list); err != nil {
		return 0, err
	}
	for i := range list.Items {
		if list.Items[i].Level == contract.LevelRequestType {
			n += list.Items[i].Count
		}
	}
	return n, nil
}

// documents are the lists that must be equal at all replicas, as JSON.
var documents = []string{"/api/v1/incidents", "/api/v1/problems", "/api/v1/decisions", "/api/v1/groups?limit=1000"}

// suspects returns the service of the first suspect of each incident, in the order of the list.
func (r *replica) suspects(ctx context.Context) (all []string, err error) {
	var list contract.IncidentList
	if err := r.get(ctx, "/api/v1/incidents?state=all", &list); err != nil {
		return nil, err
	}
	all = []string{}
	for i := range list.Items {
		all = append(all, list.Items[i].Service)
	}
	return all, nil
}

// memory returns the resident memory in bytes, or 0 if the process has exited.
func (r *replica) memory() int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", r.cmd.Process.Pid))
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64) // the kernel writes numbers
	return pages * int64(os.Getpagesize())
}
