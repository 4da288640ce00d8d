package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/bench/demo/shop"
)

// child is a process that exits at the end of its standard input, and therefore also when this process dies.
type child struct {
	name     string
	command  *exec.Cmd
	input    io.WriteCloser
	log      *os.File
	exited   chan struct{} // closed when the process has exited
	err      error         // set before exited is closed, if the process failed
	reported bool          // exitError was called
	commands *json.Encoder
	replies  *bufio.Scanner
}

// start starts a program in dir, with its standard error in a file there.
func start(name, program, dir string, environment []string, arguments ...string) (c *child, err error) {
	command := exec.Command(program, arguments...) //nolint:noctx // it exits with its input
	c = &child{name: name, command: command, exited: make(chan struct{})}
	c.command.Env = environment
	// Ctrl-C reaches only this process, which stops the others in order.
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.command.Dir = dir
	if c.input, err = c.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	output, err := c.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if c.log, err = os.Create(filepath.Join(dir, name+".log")); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.command.Stderr = c.log
	c.commands, c.replies = json.NewEncoder(c.input), bufio.NewScanner(output)
	if err := c.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), c.log.Close())
	}
	go func() { // ends with the process
		defer close(c.exited)
		state, err := c.command.Process.Wait()
		switch {
		case err != nil:
			c.err = fmt.Errorf("%s: %w", name, err)
		case !state.Success():
			c.err = fmt.Errorf("%s: %s: %s", name, state, c.logTail())
		}
	}()
	return c, nil
}

// send sends a command and decodes the reply into reply.
func (c *child) send(command, reply any) error {
	if err := c.commands.Encode(command); err != nil {
		return c.noReply(fmt.Errorf("send to %s: %w", c.name, err))
	}
	if !c.replies.Scan() {
		return c.noReply(fmt.Errorf("%s does not reply: %s", c.name, c.logTail()))
	}
	if err := json.Unmarshal(c.replies.Bytes(), reply); err != nil {
		return fmt.Errorf("decode the reply of %s: %w", c.name, err)
	}
	return nil
}

// report returns the counters of a process of the shop.
func (c *child) report() (*shop.Report, error) {
	var reply shop.Reply
	if err := c.send(shop.Command{Report: true}, &reply); err != nil {
		return nil, err
	}
	if reply.Report == nil {
		return nil, fmt.Errorf("%s does not report: %s", c.name, reply.Error)
	}
	return reply.Report, nil
}

// noReply returns the exit error of a process that does not reply, or err if the process is still running after
// exitTimeout.
func (c *child) noReply(err error) error {
	select {
	case <-c.exited:
		return c.exitError()
	case <-time.After(exitTimeout):
		return err
	}
}

// logTail returns the last lines of the log, even if the file has been removed.
func (c *child) logTail() string {
	data, err := io.ReadAll(io.NewSectionReader(c.log, 0, maxLog))
	switch {
	case err != nil:
		return fmt.Sprintf("its log cannot be read: %v", err)
	case len(data) > 0:
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		return strings.Join(lines[max(0, len(lines)-5):], "; ")
	case isFull(c.log):
		return "its log is empty, because the disk of " + filepath.Dir(c.log.Name()) + " is full"
	}
	return "its log is empty"
}

// maxLog bounds the part of a log that is read.
const maxLog = 1 << 30

// isFull reports whether the disk of a file is full.
func isFull(f *os.File) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &s) == nil && s.Bavail == 0
}

// exitError returns an error for the unexpected exit of the process. stop does not return it again.
func (c *child) exitError() error {
	c.reported = true
	if c.err != nil {
		return c.err
	}
	return fmt.Errorf("%s exited: %s", c.name, c.logTail())
}

// stop ends the input of the process, and kills the process after the timeout. It returns the error of a failed exit,
// unless exitError has already returned it.
func (c *child) stop(timeout time.Duration) error {
	_ = c.input.Close() // fails if the process has exited
	err := error(nil)
	select {
	case <-c.exited:
		err = c.err
	case <-time.After(timeout):
		_ = c.command.Process.Kill() // fails if the process has just exited
		<-c.exited
		err = fmt.Errorf("%s did not exit within %s of the request and was killed: %s", c.name, timeout, c.logTail())
	}
	if c.reported {
		return c.log.Close()
	}
	return errors.Join(err, c.log.Close())
}

// plainEnvironment returns an environment without the variables that configure Sibyl and OpenTelemetry.
func plainEnvironment(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(v string) bool {
		return strings.HasPrefix(v, "SIBYL_") || strings.HasPrefix(v, "OTEL_")
	})
}

// Supervise runs a program, with errOut as its standard error, and terminates it at the end of in. It then also removes
// dir, unless that is "", so that a demo leaves no files even if it was killed. dir may only be given for the program
// that ends last.
func Supervise(ctx context.Context, in io.Reader, errOut io.Writer, dir, program string, args ...string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with the input, or with this process
		_, _ = io.Copy(io.Discard, in)
		cancel(errInputEnded)
	}()
	c := exec.CommandContext(ctx, program, args...)
	c.Stderr = errOut
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = exitTimeout
	err := c.Run()
	if ctx.Err() != nil && c.ProcessState != nil && c.ProcessState.Success() {
		err = nil // it was terminated and exited cleanly
	}
	if dir != "" && errors.Is(context.Cause(ctx), errInputEnded) {
		err = errors.Join(err, remove(dir))
	}
	return err
}

// remove removes dir. It retries, because processes that are about to exit may still create files.
func remove(dir string) error {
	deadline := time.Now().Add(removeTimeout)
	for {
		err := os.RemoveAll(dir)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(removeInterval)
	}
}

// Total time of all attempts of remove, and the time between them.
const (
	removeTimeout  = 5 * time.Second
	removeInterval = 50 * time.Millisecond
)

// errInputEnded is the cause of the context of Supervise at the end of its input.
var errInputEnded = errors.New("the input ended")
