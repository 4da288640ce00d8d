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
)

// child is a process that ends when its standard input does: whatever way this one ends, its children do, too.
type child struct {
	name    string
	command *exec.Cmd
	input   io.WriteCloser
	log     *os.File
	ended   chan struct{} // closed when it did; err is set then
	err     error
	mourned bool // somebody said how it ended
	orders  *json.Encoder
	answers *bufio.Scanner
}

// start runs this program again with other arguments. What it writes to its standard error goes to a file in dir.
func start(name, program, dir string, environment []string, arguments ...string) (c *child, err error) {
	c = &child{name: name, command: exec.Command(program, arguments...), ended: make(chan struct{})} //nolint:noctx // it ends with its input
	c.command.Env = environment
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this process, which ends the others in order
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
	c.orders, c.answers = json.NewEncoder(c.input), bufio.NewScanner(output)
	if err := c.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), c.log.Close())
	}
	go func() { // ends with the process
		defer close(c.ended)
		state, err := c.command.Process.Wait()
		switch {
		case err != nil:
			c.err = fmt.Errorf("%s: %w", name, err)
		case !state.Success():
			c.err = fmt.Errorf("%s: %s: %s", name, state, c.lastWords())
		}
	}()
	return c, nil
}

// tell gives an order and reads the answer into answer.
func (c *child) tell(order, answer any) error {
	if err := c.orders.Encode(order); err != nil {
		return c.silence(fmt.Errorf("tell %s: %w", c.name, err))
	}
	if !c.answers.Scan() {
		return c.silence(fmt.Errorf("%s does not answer: %s", c.name, c.lastWords()))
	}
	if err := json.Unmarshal(c.answers.Bytes(), answer); err != nil {
		return fmt.Errorf("understand %s: %w", c.name, err)
	}
	return nil
}

// silence says why the process does not answer: mostly because it ended. Otherwise that is err.
func (c *child) silence(err error) error {
	select {
	case <-c.ended:
		return c.death()
	case <-time.After(stopWithin):
		return err
	}
}

// lastWords returns the end of what the process logged.
func (c *child) lastWords() string {
	data, err := os.ReadFile(c.log.Name())
	if err != nil {
		return ""
	}
	if len(data) == 0 {
		return "it left no word: is there room in " + filepath.Dir(c.log.Name()) + "?"
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "; ")
}

// death says how a process ended that should not have, which stop does not say again.
func (c *child) death() error {
	c.mourned = true
	if c.err != nil {
		return c.err
	}
	return fmt.Errorf("%s ended: %s", c.name, c.lastWords())
}

// stop ends the process: its input ends, and if that is not enough it is killed.
func (c *child) stop(within time.Duration) error {
	_ = c.input.Close() // it may be gone already
	select {
	case <-c.ended:
	case <-time.After(within):
		_ = c.command.Process.Kill() // it may have ended just now
		<-c.ended
	}
	if c.mourned {
		return c.log.Close()
	}
	return errors.Join(c.err, c.log.Close())
}

// plainEnvironment returns an environment without what configures Sibyl or OpenTelemetry: a demo is the same everywhere.
func plainEnvironment(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(v string) bool {
		return strings.HasPrefix(v, "SIBYL_") || strings.HasPrefix(v, "OTEL_")
	})
}

// Attend runs a program that does not watch its standard input, and ends it when the input in ends. Then it removes dir, so that a demo
// that was killed leaves nothing. It writes the program's standard error to errOut.
func Attend(ctx context.Context, in io.Reader, errOut io.Writer, dir, program string, args ...string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with the input, or with this process
		_, _ = io.Copy(io.Discard, in)
		cancel(errLeft)
	}()
	c := exec.CommandContext(ctx, program, args...)
	c.Stderr = errOut
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = stopWithin
	err := c.Run()
	if ctx.Err() != nil && c.ProcessState != nil && c.ProcessState.Success() {
		err = nil // it ended in order, as it was told to
	}
	if errors.Is(context.Cause(ctx), errLeft) {
		err = errors.Join(err, remove(dir))
	}
	return err
}

// remove removes dir, in which processes that are about to end may still make files.
func remove(dir string) error {
	deadline := time.Now().Add(stopWithin)
	for {
		err := os.RemoveAll(dir)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(removeEvery)
	}
}

const removeEvery = 50 * time.Millisecond

// errLeft says that whoever attended left.
var errLeft = errors.New("the other end left")
