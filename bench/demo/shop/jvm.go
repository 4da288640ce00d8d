package shop

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// jvm is a running program in Java. It listens on loopback, writes its port to a file, and exits at the end of its
// standard input.
type jvm struct {
	name     string // for errors
	portFile string
	command  *exec.Cmd
	input    io.WriteCloser
	exited   chan struct{} // closed when the process has exited
	err      error         // set before exited is closed
}

// startJVM starts a program in dir. variables are added to the environment of this process.
func startJVM(name, portFile, java, dir string, arguments, variables []string) (j *jvm, err error) {
	command := exec.Command(java, arguments...) //nolint:noctx // stop ends it in order
	j = &jvm{name: name, portFile: portFile, command: command, exited: make(chan struct{})}
	j.command.Env = append(os.Environ(), append(variables, "PORTFILE="+portFile)...)
	j.command.Dir, j.command.Stdout, j.command.Stderr = dir, os.Stderr, os.Stderr
	if j.input, err = j.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := j.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // ends with the process
		defer close(j.exited)
		j.err = j.command.Wait()
	}()
	return j, nil
}

// portFile returns the path of the file into which a process of the service writes its port.
func (s *Setup) portFile(process string) string {
	return filepath.Join(s.Dir, fmt.Sprintf("%s-%d%s.port", s.Service, s.Instance, process))
}

// Timing of a program in Java, on a busy machine.
const (
	javaStartTimeout = 10 * time.Minute
	javaStopTimeout  = 3 * time.Second
	javaPoll         = 50 * time.Millisecond
)

// awaitPort returns the port of the program once it has written it.
func (j *jvm) awaitPort(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, javaStartTimeout)
	defer cancel()
	for {
		if data, err := os.ReadFile(j.portFile); err == nil {
			if port := strings.TrimSpace(string(data)); port != "" {
				return port, nil
			}
		}
		select {
		case <-time.After(javaPoll):
		case <-j.exited:
			return "", fmt.Errorf("%s does not start", j.name)
		case <-ctx.Done():
			return "", fmt.Errorf("%s does not listen", j.name)
		}
	}
}

// stop ends the process. If the process has already exited, even successfully, it returns an error.
func (j *jvm) stop() error {
	select {
	case <-j.exited:
		if j.err == nil {
			return fmt.Errorf("%s exited", j.name)
		}
		return fmt.Errorf("%s exited: %w", j.name, j.err)
	default:
	}
	_ = j.input.Close() // fails if the process has just exited
	select {
	case <-j.exited:
	case <-time.After(javaStopTimeout):
		_ = j.command.Process.Kill() // fails if the process has just exited
		<-j.exited
	}
	return nil
}

// javaDatabase is the database of a service in Java, in a separate process.
type javaDatabase struct {
	*jvm
	port, password string
}

// databasePassword is the environment variable with the password of the database. If it were empty, every user of the
// host could run code in the database.
const databasePassword = "DATABASE_PASSWORD"

// startJavaDatabase starts the database, which is part of the service's jar.
func startJavaDatabase(ctx context.Context, setup *Setup) (d *javaDatabase, err error) {
	d = &javaDatabase{password: rand.Text()}
	arguments := []string{
		"-Xmx256m", "-cp", setup.Java.Service, "-Dloader.main=shop.database.DatabaseServer",
		"org.springframework.boot.loader.launch.PropertiesLauncher",
	}
	d.jvm, err = startJVM("the database of the service in Java", setup.portFile("-database"), setup.Java.JVM, setup.Dir,
		arguments, []string{databasePassword + "=" + d.password})
	if err != nil {
		return nil, err
	}
	if d.port, err = d.awaitPort(ctx); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}
