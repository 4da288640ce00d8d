package cluster

import (
	"context"
	_ "embed" // the list of Kafka's artifacts
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// kafkaVersion is the version of Kafka that runs.
const kafkaVersion = "4.4.0"

// artifacts is a Maven project whose dependencies are Kafka's.
//
//go:embed kafka/pom.xml
var artifacts []byte

// errNoJava is returned if Kafka can't be installed.
var errNoJava = errors.New("the brokers need java and mvn: apt-get install default-jdk-headless maven")

// brokers are three brokers of Kafka on loopback, each also a controller.
type brokers struct {
	dir, jars string
	ports     [3]int // for clients
	running   [3]*exec.Cmd
}

// install copies the jars of Kafka into cache, unless they are there, and returns their directory.
func install(ctx context.Context, cache string) (jars string, err error) {
	jars = filepath.Join(cache, "kafka-"+kafkaVersion)
	if _, err := os.Stat(filepath.Join(jars, "complete")); err == nil {
		return jars, nil
	}
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", errNoJava
		}
	}
	if err := os.MkdirAll(jars, 0o755); err != nil {
		return "", err
	}
	project := filepath.Join(jars, "pom.xml")
	if err := os.WriteFile(project, artifacts, 0o644); err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", project, "-Dkafka="+kafkaVersion,
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+jars)
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install Kafka: %w: %s", err, out)
	}
	return jars, os.WriteFile(filepath.Join(jars, "complete"), nil, 0o644)
}

// startBrokers starts three brokers with empty logs below dir.
func startBrokers(ctx context.Context, dir, cache string) (*brokers, error) {
	jars, err := install(ctx, cache)
	if err != nil {
		return nil, err
	}
	b := &brokers{dir: dir, jars: jars}
	var controllers [3]int
	for i := range b.ports {
		if b.ports[i], err = freePort(ctx); err != nil {
			return nil, err
		}
		if controllers[i], err = freePort(ctx); err != nil {
			return nil, err
		}
	}
	voters := fmt.Sprintf("1@127.0.0.1:%d,2@127.0.0.1:%d,3@127.0.0.1:%d",
		controllers[0], controllers[1], controllers[2])
	id, err := b.java(ctx, "kafka.tools.StorageTool", "random-uuid").Output()
	if err != nil {
		return nil, fmt.Errorf("an ID for the brokers: %w", err)
	}
	for i := range b.ports {
		text := fmt.Sprintf(properties, i+1, voters, b.ports[i], controllers[i], b.ports[i],
			filepath.Join(dir, fmt.Sprint("log", i)))
		if err := os.WriteFile(b.file(i), []byte(text), 0o644); err != nil {
			return nil, err
		}
		format := b.java(ctx, "kafka.tools.StorageTool", "format", "-t", strings.TrimSpace(string(id)), "-c", b.file(i))
		if out, err := format.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("format the log of a broker: %w: %s", err, out)
		}
	}
	for i := range b.ports {
		if err := b.start(ctx, i); err != nil {
			return b, err
		}
	}
	return b, b.wait(ctx)
}

// properties configures a broker: a machine with three of them shares two cores with the replicas.
const properties = `process.roles=broker,controller
node.id=%d
controller.quorum.voters=%s
listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d
advertised.listeners=PLAINTEXT://127.0.0.1:%d
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=%s
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=2
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
log.cleaner.dedupe.buffer.size=8388608
log.segment.bytes=16777216
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=1000
`

func (b *brokers) file(i int) string {
	return filepath.Join(b.dir, fmt.Sprintf("broker%d.properties", i))
}

func (b *brokers) java(ctx context.Context, args ...string) *exec.Cmd {
	options := []string{
		"-Xms192m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(b.jars, "*"),
	}
	return exec.CommandContext(ctx, "java", append(options, args...)...)
}

// start starts broker i.
func (b *brokers) start(ctx context.Context, i int) error {
	c := b.java(ctx, "kafka.Kafka", b.file(i))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(b.dir, fmt.Sprintf("broker%d.log", i)))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has a descriptor of its own
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		return fmt.Errorf("start a broker: %w", err)
	}
	b.running[i] = c
	return nil
}

// kill kills broker i.
func (b *brokers) kill(i int) {
	if c := b.running[i]; c != nil {
		_ = c.Process.Kill() // fails if it has exited
		_ = c.Wait()         // reports the signal
		b.running[i] = nil
	}
}

// wait waits until all brokers accept connections.
func (b *brokers) wait(ctx context.Context) error {
	for _, port := range b.ports {
		for until := time.Now().Add(time.Minute); ; sleep(ctx, 100*time.Millisecond) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", port))
			if err == nil {
				_ = c.Close() // nothing was sent
				break
			}
			if ctx.Err() != nil || time.Now().After(until) {
				return fmt.Errorf("a broker did not start; see %s: %w", b.dir, err)
			}
		}
	}
	return nil
}

// addresses returns the addresses of the brokers, separated by commas.
func (b *brokers) addresses() string {
	return fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", b.ports[0], b.ports[1], b.ports[2])
}

// stop kills all brokers.
func (b *brokers) stop() {
	for i := range b.running {
		b.kill(i)
	}
}

// freePort returns a port of loopback that is not in use.
func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	address, _ := l.Addr().(*net.TCPAddr) // of TCP, because Listen was asked for it
	return address.Port, l.Close()
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
