package jvm

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Timeouts and the polling interval for attaching.
const (
	wakeTimeout = 10 * time.Second // until the JVM listens; it may be in a long pause for garbage collection
	loadTimeout = 60 * time.Second // until the agent has started, which transforms classes
	wakePoll    = 20 * time.Millisecond
)

const maxAnswer = 1 << 20 // maximum size of a JVM's answer, in bytes

// Attach loads the agent with the given arguments into the running JVM with the given process ID, which may be in a
// container. It leaves the jar in the JVM's folder for temporary files, because the JVM keeps it open. The caller must
// be root or the user of the process.
func Attach(ctx context.Context, pid int, arguments string) error {
	p, err := findProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = p.root.Close() }()
	jar, err := p.writeJar()
	if err != nil {
		return fmt.Errorf("copy the agent to process %d: %w", pid, err)
	}
	if err = p.wake(ctx); err != nil {
		err = errors.Join(err, p.root.Remove(jar))
	} else {
		err = p.load(ctx, jar, arguments)
	}
	if err != nil {
		return fmt.Errorf("attach to process %d: %w", pid, err)
	}
	return nil
}

// process is a running JVM.
type process struct {
	pid      int
	inside   int      // process ID in its own namespace
	uid, gid int      // effective
	root     *os.Root // its root folder: the root of its container if it runs in a container
}

// quitBit is the bit of SIGQUIT in the masks of /proc/PID/status.
const quitBit = 1 << (syscall.SIGQUIT - 1)

// findProcess returns the JVM with the given process ID. It returns an error unless the process is a JVM that can be
// attached to, because SIGQUIT would end any other process.
func findProcess(pid int) (*process, error) {
	proc := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(proc + "/status")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no process %d", pid)
	} else if err != nil {
		return nil, err
	}
	maps, err := os.ReadFile(proc + "/maps")
	if err != nil {
		return nil, fmt.Errorf("process %d: %w: run as root or as its user", pid, err)
	}
	p, catches, err := parseStatus(status)
	switch {
	case err != nil:
		return nil, fmt.Errorf("process %d: %w", pid, err)
	case !bytes.Contains(maps, []byte("/libjvm.so")):
		return nil, fmt.Errorf("process %d is not a JVM of OpenJDK", pid)
	case !catches:
		return nil, fmt.Errorf("process %d does not accept agents: it is still starting, "+
			"or runs with -Xrs or -XX:+ReduceSignalUsage", pid)
	}
	p.pid = pid
	if p.root, err = os.OpenRoot(proc + "/root"); err != nil { // a path in it can't lead out of the container
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return p, nil
}

// parseStatus parses /proc/PID/status, and reports whether the process catches SIGQUIT.
func parseStatus(status []byte) (p *process, catches bool, err error) {
	p = &process{inside: -1, uid: -1, gid: -1}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		last := fields[len(fields)-1]
		switch key {
		case "NSpid":
			p.inside, err = strconv.Atoi(last)
		case "Uid":
			p.uid, err = strconv.Atoi(fields[min(1, len(fields)-1)])
		case "Gid":
			p.gid, err = strconv.Atoi(fields[min(1, len(fields)-1)])
		case "SigCgt":
			var mask uint64
			mask, err = strconv.ParseUint(last, 16, 64)
			catches = mask&quitBit != 0
		}
		if err != nil {
			return nil, false, err
		}
	}
	if p.inside < 0 || p.uid < 0 || p.gid < 0 {
		return nil, false, errors.New("incomplete status")
	}
	return p, catches, nil
}

// create creates a file called name in the process's root folder, with the given content and readable by the process.
// It returns an error that wraps [fs.ErrExist] if the file exists.
func (p *process) create(name string, content []byte) error {
	f, err := p.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if os.Geteuid() != p.uid {
		err = errors.Join(err, f.Chown(p.uid, p.gid))
	}
	return errors.Join(err, f.Close())
}

// writeJar writes the jar and returns its name in the root folder of the process.
func (p *process) writeJar() (string, error) {
	name := fmt.Sprintf("tmp/sibyl-agent-%d-%s.jar", p.inside, rand.Text())
	return name, p.create(name, Jar())
}

// socket returns the name of the JVM's socket for commands, relative to the process's root folder.
func (p *process) socket() string { return "tmp/.java_pid" + strconv.Itoa(p.inside) }

// listens reports whether the JVM accepts commands.
func (p *process) listens() bool {
	info, err := p.root.Lstat(p.socket())
	return err == nil && info.Mode()&fs.ModeSocket != 0
}

// wake makes the JVM accept commands if it doesn't yet. To this end, it sends SIGQUIT while a file exists whose name is
// .attach_pid followed by the JVM's process ID.
func (p *process) wake(ctx context.Context) error {
	if p.listens() {
		return nil
	}
	name := "tmp/.attach_pid" + strconv.Itoa(p.inside)
	if err := p.create(name, nil); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	defer func() { _ = p.root.Remove(name) }()
	if err := syscall.Kill(p.pid, syscall.SIGQUIT); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	tick := time.NewTicker(wakePoll)
	defer tick.Stop()
	for !p.listens() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("the JVM does not respond: it may run with -XX:+DisableAttachMechanism")
		}
	}
	return nil
}

// errorProperty is the system property that the agent sets to the reason if it can't start.
const errorProperty = "sibyl.agent.error"

// load tells the JVM to load the agent. If the agent doesn't start, the error contains the reason.
func (p *process) load(ctx context.Context, jar, arguments string) error {
	answer, err := p.command(ctx, "load", "instrument", "false", "/"+jar+"="+arguments)
	if err != nil {
		return err
	}
	code, found := strings.CutPrefix(strings.TrimSpace(answer), "return code: ") // since JDK 9
	if found && code != "0" {
		return fmt.Errorf("the JVM cannot load the agent (code %s): its standard error shows the reason", code)
	}
	properties, err := p.command(ctx, "properties", "", "", "")
	if err != nil {
		return err
	}
	for line := range strings.Lines(properties) {
		reason, found := strings.CutPrefix(strings.TrimRight(line, "\r\n"), errorProperty+"=")
		if found && reason != "" {
			return errors.New(unescape.Replace(reason))
		}
	}
	return nil
}

// unescape removes the escapes from a value in a properties file. It only knows the escapes that error messages need.
var unescape = strings.NewReplacer(`\\`, `\`, `\:`, `:`, `\=`, `=`, `\#`, `#`, `\!`, `!`, `\ `, ` `)

// command sends command, which consists of a name and three arguments, to the JVM. It returns the response, or an error
// if the JVM refuses the command.
func (p *process) command(ctx context.Context, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", filepath.Join("/proc", strconv.Itoa(p.pid), "root", p.socket()))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return "", err
	}
	// Version 1 of the protocol terminates each string with a zero byte. The answer starts with a line that contains a
	// number, 0 for success.
	if _, err := io.WriteString(c, "1\x00"+strings.Join(command, "\x00")+"\x00"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(c, maxAnswer))
	if len(answer) == 0 {
		return "", errors.Join(err,
			errors.New("the JVM closed the connection: it accepts commands of root and of its own user only"))
	}
	code, text, _ := strings.Cut(string(answer), "\n")
	if code != "0" {
		return "", fmt.Errorf("the JVM refuses the command %s with code %s: %s", command[0], code, text)
	}
	return text, nil
}
