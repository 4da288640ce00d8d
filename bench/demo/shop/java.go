package shop

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Faults of the catalog in Java, in its methods.
const (
	JavaMethod Fault = "java-method" // a method computes too long
	JavaLock   Fault = "java-lock"   // a lock that requests of all types acquire is held too long
	JavaGC     Fault = "java-gc"     // much garbage and a large heap
	JavaQuery  Fault = "java-query"  // a query lacks an index
	JavaNPlus1 Fault = "java-n+1"    // a query for each row of another
)

// JavaFaults returns all faults of the catalog in Java.
func JavaFaults() []Fault { return []Fault{JavaMethod, JavaLock, JavaGC, JavaQuery, JavaNPlus1} }

// Java configures a service of the shop that is a program in Java.
type Java struct {
	JVM           string   `json:"jvm"`           // program java
	Service       string   `json:"service"`       // jar
	OpenTelemetry string   `json:"opentelemetry"` // jar of OpenTelemetry's Java agent; may be ""
	Agent         string   `json:"agent"`         // jar of Sibyl's agent; may be ""
	Arguments     []string `json:"arguments"`     // of Sibyl's agent, beyond its endpoint
	Search        string   `json:"search"`        // URL of the service search; "" if the catalog calls no other service
}

// JavaService is the service of the shop that also exists in Java.
const JavaService = "catalog"

// javaSites lists the possible locations of the faults of the catalog in Java. A method that is called too often is a
// correct answer, too, and so is a statement, under its name in OpenTelemetry's Java agent.
var javaSites = map[Fault][]Truth{
	JavaMethod: {{Edge: javaMethod("AttributeFormatter.format")}, {Edge: javaMethod("Facets.count")}},
	JavaLock:   {{Edge: javaMethod("ViewCounter.count"), Waits: waitsOf[JavaLock]}},
	JavaGC:     {{Edge: javaMethod("Similarity.nearest")}},
	JavaQuery: {{
		Edge:   javaMethod("PriceHistoryRepository.range"),
		Inside: []string{"PriceHistoryRepository.figure", "SELECT catalog.price_history"}, Table: "price_history",
	}},
	JavaNPlus1: {{
		Edge: javaMethod("OfferService.offersOf"),
		Inside: []string{
			"SellerRepository.findById", "OfferRepository.findByProduct", "SELECT catalog.sellers",
			"SELECT catalog.offers",
		},
		Table: "sellers",
	}},
}

func javaMethod(name string) Edge { return Edge{Service: JavaService, Operation: name} }

// javaFault returns the location that the seed selects.
func javaFault(kind Fault, seed uint64) (*Truth, error) {
	list := javaSites[kind]
	if len(list) == 0 {
		return nil, fmt.Errorf("the catalog in Java has no fault named %q", kind)
	}
	return &list[seed%uint64(len(list))], nil
}

// javaProcess is a running service in Java. It reads faults from its standard input.
type javaProcess struct {
	*jvm
	setup    *Setup
	spans    *spanRelay
	database *javaDatabase
	address  string
}

// javaLimits are the arguments of the JVM. Garbage is cheap in a heap that is far too large.
var javaLimits = []string{"-Xmx192m"}

// runJava runs a service in Java and its database until the commands end or one of the two processes exits.
func runJava(ctx context.Context, setup *Setup, commands <-chan Command, replies *json.Encoder) (err error) {
	j := &javaProcess{setup: setup}
	if j.spans, err = startRelay(ctx, setup.OTLP); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.spans.close()) }()
	if j.database, err = startJavaDatabase(ctx, setup); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.database.stop()) }()
	arguments := append(j.arguments(), "-jar", setup.Java.Service)
	j.jvm, err = startJVM("the service in Java", setup.portFile(""), setup.Java.JVM, setup.Dir,
		arguments, j.environment())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.stop()) }()
	return j.serve(ctx, commands, replies)
}

// serve executes commands until they end, ctx ends, or a process exits.
func (j *javaProcess) serve(ctx context.Context, commands <-chan Command, replies *json.Encoder) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with one of the processes, which runJava stops
		select {
		case <-j.exited:
		case <-j.database.exited:
		}
		cancel()
	}()
	port, err := j.awaitPort(ctx)
	if err != nil {
		return err
	}
	j.address = net.JoinHostPort("127.0.0.1", port)
	if err := replies.Encode(Reply{Address: j.address, Process: j.command.Process.Pid}); err != nil {
		return fmt.Errorf("reply: %w", err)
	}
	return execute(ctx, commands, replies, j.reply)
}

// arguments returns the arguments of the JVM that load the agents, as a user would write them.
func (j *javaProcess) arguments() []string {
	arguments := append([]string(nil), javaLimits...)
	java := j.setup.Java
	if java.OpenTelemetry == "" {
		return arguments
	}
	arguments = append(arguments, "-javaagent:"+java.OpenTelemetry)
	if java.Agent != "" {
		arguments = append(arguments, "-Dotel.javaagent.extensions="+java.Agent)
	}
	return arguments
}

// environment returns the variables that configure the service and its agents.
func (j *javaProcess) environment() []string {
	java := j.setup.Java
	variables := []string{
		"SEARCH_URL=" + java.Search, "DATABASE_PORT=" + j.database.port, databasePassword + "=" + j.database.password,
		"OTEL_SERVICE_NAME=" + j.setup.Service,
		fmt.Sprintf("OTEL_RESOURCE_ATTRIBUTES=service.instance.id=%s-%d", j.setup.Service, j.setup.Instance),
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + j.spans.address(),
		"OTEL_METRICS_EXPORTER=none", "OTEL_LOGS_EXPORTER=none",
		"OTEL_BSP_SCHEDULE_DELAY=" + strconv.FormatInt(exportInterval.Milliseconds(), 10),
	}
	if java.Agent != "" {
		arguments := append([]string{"endpoint:" + j.setup.Control, `exclude:shop\.catalog\.faults\..*`},
			java.Arguments...)
		if j.setup.Labels {
			arguments = append(arguments, "waits:on")
		}
		variables = append(variables, "SIBYL_AGENT="+strings.Join(arguments, "#"))
	}
	return variables
}

// reply executes a command.
func (j *javaProcess) reply(ctx context.Context, c Command) Reply {
	switch {
	case c.Peers != nil:
		j.warmUp(ctx)
		return Reply{}
	case c.Inject != nil:
		injected, err := j.inject(c.Inject)
		if err != nil {
			return Reply{Error: err.Error()}
		}
		return Reply{Injected: injected}
	case c.Report:
		used, err := cpuTime(j.command.Process.Pid)
		if err != nil {
			return Reply{Error: err.Error()}
		}
		return Reply{Report: &Report{Spans: j.spans.spans.Load(), Extra: j.spans.extra.Load(), CPU: used}}
	}
	return Reply{Error: "the service in Java does not support this command"}
}

// inject switches the service to a fault, or back to normal if the fault is [None]. It reports whether there is a fault
// now.
func (j *javaProcess) inject(i *Injection) (bool, error) {
	line := string(None)
	if i.Fault != None {
		truth, err := javaFault(i.Fault, i.Seed)
		if err != nil {
			return false, err
		}
		if err := writeTruth(j.setup.Truth, truth); err != nil {
			return false, err
		}
		line = string(i.Fault) + " " + truth.Operation
	}
	if _, err := io.WriteString(j.input, line+"\n"); err != nil {
		return false, fmt.Errorf("inject a fault into the service in Java: %w", err)
	}
	return i.Fault != None, nil
}

// JavaPaths returns the paths of the catalog in Java. The gateway calls the first two.
func JavaPaths() []string { return []string{"/list", "/item", "/compare", "/seller"} }

// Limits on the warm-up. Without it, the compiler of the JVM would make requests faster and faster in the healthy time.
const (
	warmUpRequests = 800         // to each path
	warmUpTime     = time.Minute // more than one JVM may warm up at once
	warmUpClients  = 4
)

// warmUp sends requests whose traces are not sampled.
func (j *javaProcess) warmUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, warmUpTime)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: warmUpClients}}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range uint64(warmUpClients) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(0, i))
			for range warmUpRequests / warmUpClients {
				for _, path := range JavaPaths() {
					if sendUnsampled(ctx, client, "http://"+j.address+path, r) != nil {
						return // the customers will notice
					}
				}
			}
		})
	}
	all.Wait()
}

// sendUnsampled sends a random request as part of a trace that is not sampled.
func sendUnsampled(ctx context.Context, client *http.Client, url string, r *rand.Rand) error {
	q := NewRequest(r)
	body, err := json.Marshal(&q)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	var id [24]byte
	for i := range id {
		id[i] = byte(1 + r.IntN(255))
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent",
		fmt.Sprintf("00-%s-%s-00", hex.EncodeToString(id[:16]), hex.EncodeToString(id[16:])))
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close())
}
