package estate

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"text/template"
)

// program is a program of the estate. Its name is the service.name of its spans, unless service is set.
type program struct {
	name      string
	service   string   // of one of several instances; by default name
	packages  []string // to install
	calls     []string // the programs that it calls through links; it runs only if all of them do
	ready     string   // path with a status below 500 once the program is ready; "": the port accepts connections
	command   func(e *estate) command
	configure func(e *estate) error              // writes the configuration before each start
	prepare   func(e *estate) ([]command, error) // commands to run before the first start
	after     func(e *estate) ([]command, error) // commands to run after the first start
	worker    bool                               // takes tasks from a queue and listens on no port
	external  bool                               // emits no spans
}

// serviceName returns the service.name of the spans.
func (p *program) serviceName() string {
	if p.service != "" {
		return p.service
	}
	return p.name
}

// httpbins is the number of instances of httpbin.
const httpbins = 3

// programs lists the programs in the order of their start, without Toxiproxy, which carries the links between them.
func programs() []program {
	list := []program{
		{
			name:     "postgresql",
			packages: []string{"postgresql"},
			external: true,
			command:  postgresql,
			prepare:  initPostgresql,
			after:    createDatabases,
		},
		{name: "redis", packages: []string{"redis"}, external: true, command: redis},
		{
			name:      "npm-origin",
			packages:  []string{"wiremock", "javaagent"},
			ready:     "/__admin/health",
			command:   wiremock("npm-origin"),
			configure: stubOrigin,
		},
		{
			name:      "verdaccio",
			packages:  []string{"node"},
			calls:     []string{"npm-origin"},
			ready:     "/-/ping",
			command:   verdaccio,
			configure: configure("verdaccio", "verdaccio.yaml"),
		},
		{
			name:      "kinto",
			packages:  []string{"kinto"},
			calls:     []string{"postgresql", "redis"},
			ready:     "/v1/",
			command:   kinto,
			configure: configure("kinto", "kinto.ini"),
			prepare:   migrateKinto,
		},
		{
			name:     "datasette",
			packages: []string{"datasette"},
			ready:    "/-/versions.json",
			command:  datasette,
			prepare:  initDatasette,
		},
		{
			name:     "postgraphile",
			packages: []string{"node"},
			calls:    []string{"postgresql"},
			ready:    "/graphiql",
			command:  postgraphile,
		},
		{
			name:      "registry",
			packages:  []string{"registry"},
			calls:     []string{"redis"},
			ready:     "/v2/",
			command:   containerRegistry,
			configure: configure("registry", "registry.yml"),
		},
		{
			name:      "wiremock",
			packages:  []string{"wiremock", "javaagent"},
			calls:     []string{"kinto", "datasette"},
			ready:     "/__admin/health",
			command:   wiremock("wiremock"),
			configure: stubProxy,
		},
	}
	for _, name := range []string{"orders", mailer, reports} {
		list = append(list, queueProgram(name))
	}
	list = append(list, program{
		name:      "feed",
		packages:  []string{"feed"},
		calls:     []string{"redis"},
		ready:     "/latest",
		command:   feed,
		configure: configure("feed", "feed.py"),
	})
	for i := range httpbins {
		name := "httpbin-" + strconv.Itoa(i+1)
		list = append(list, program{
			name:     name,
			service:  "httpbin",
			packages: []string{"httpbin"},
			ready:    "/status/200",
			command:  httpbin(name),
		})
	}
	return append(list, program{
		name:      gateway,
		packages:  []string{"caddy"},
		ready:     "/ready",
		command:   caddy,
		configure: configureGateway,
	})
}

//go:embed config
var configFiles embed.FS

// configure returns a function that writes a configuration file into the folder of a program.
func configure(program, file string) func(*estate) error {
	return func(e *estate) error { return e.writeConfig(program, file) }
}

// writeConfig executes the template config/FILE and writes the result into the folder of a program.
func (e *estate) writeConfig(program, file string) error {
	text, err := configFiles.ReadFile("config/" + file)
	if err != nil {
		return err
	}
	t, err := template.New(file).Funcs(template.FuncMap{
		"port": e.port, "address": e.address, "dir": e.dir,
	}).Parse(string(text))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, map[string]string{"Program": program}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(e.dir(program), file), out.Bytes(), 0o644)
}

// instances returns the running programs with a service name, in order.
func (e *estate) instances(service string) (names []string) {
	for _, p := range e.order {
		if p.serviceName() == service {
			names = append(names, p.name)
		}
	}
	return names
}

// telemetry returns the environment of a program, with the variables that configure its OpenTelemetry SDK.
func (e *estate) telemetry(service string, more ...string) []string {
	env := append(append([]string(nil), e.environment...),
		"OTEL_SERVICE_NAME="+service,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+e.otlp,
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_METRICS_EXPORTER=none", "OTEL_LOGS_EXPORTER=none",
	)
	return append(append(env, e.resolver()...), more...)
}

// installed returns a path below the folder of an installed package.
func (e *estate) installed(name string, path ...string) string {
	return filepath.Join(append([]string{e.installer.dir(packageNamed(name))}, path...)...)
}

// local returns the loopback address of a port.
func local(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

func containerRegistry(e *estate) command {
	return command{
		path: e.installed("registry", "registry"),
		args: []string{"serve", e.dir("registry") + "/registry.yml"},
		env:  e.telemetry("registry"),
	}
}

// node returns the environment of a Node program that preloads the instrumentation.
func (e *estate) node(service string) []string {
	return e.telemetry(service, "OTEL_NODE_RESOURCE_DETECTORS=env,host,os,process,serviceinstance",
		"NODE_PATH="+e.installed("node", "node_modules"), "HOME="+e.dir(service),
		"NODE_OPTIONS=--max-old-space-size=256 --require @opentelemetry/auto-instrumentations-node/register")
}

func verdaccio(e *estate) command {
	return command{
		path: "node",
		args: []string{
			e.installed("node", "node_modules", "verdaccio", "bin", "verdaccio"),
			"--config", e.dir("verdaccio") + "/verdaccio.yaml",
		},
		env: e.node("verdaccio"),
	}
}

func postgraphile(e *estate) command {
	return command{
		path: "node",
		args: []string{
			e.installed("node", "node_modules", "postgraphile", "cli.js"),
			"--connection", "postgres://postgres@" +
				e.address("postgraphile", "postgresql") + "/shopdb", "--schema", "public",
			"--host", "127.0.0.1", "--port", strconv.Itoa(e.port("postgraphile")),
			"--retry-on-init-fail", "--disable-query-log",
		},
		env: e.node("postgraphile"),
	}
}

// wiremock returns the command of an instance of WireMock under the Java agent.
func wiremock(name string) func(*estate) command {
	return func(e *estate) command {
		return command{
			path: "java",
			args: []string{
				"-Djdk.net.hosts.file=" + e.hostsFile(), "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
				"-javaagent:" + e.installed("javaagent", "lib", "opentelemetry-javaagent.jar"),
				"-cp", e.installed("wiremock", "lib", "*"), "wiremock.Run",
				"--bind-address", "127.0.0.1", "--port", strconv.Itoa(e.port(name)), "--root-dir", e.dir(name),
				"--no-request-journal", "--disable-banner",
			},
			env: e.telemetry(name),
		}
	}
}

// instrumented returns a command of a Python package under opentelemetry-instrument.
func (e *estate) instrumented(pkg, service string, more []string, args ...string) command {
	bin := e.installed(pkg, "venv", "bin")
	return command{
		path: bin + "/opentelemetry-instrument", args: append([]string{bin + "/" + args[0]}, args[1:]...),
		env: e.telemetry(service, more...),
	}
}

// httpbin returns the command of an instance of httpbin.
func httpbin(name string) func(*estate) command {
	return func(e *estate) command {
		return e.instrumented("httpbin", "httpbin", []string{"OTEL_RESOURCE_ATTRIBUTES=service.instance.id=" + name},
			"gunicorn", "--bind", local(e.port(name)), "--workers", "1", "--threads", "8",
			"--worker-tmp-dir", e.dir(name), "httpbin:app")
	}
}

// Celery workers, by service name and queue.
const (
	mailer  = "mailer"
	reports = "reports"
)

// queueProgram returns the program that queues tasks, or one of the workers.
func queueProgram(name string) program {
	p := program{
		name:      name,
		packages:  []string{"orders"},
		calls:     []string{"redis"},
		configure: configure(name, "orders.py"),
		command:   worker(name),
	}
	switch name {
	case "orders":
		p.ready, p.command = "/ready", orders
	case reports:
		p.calls = append(p.calls, "datasette")
	}
	p.worker = p.name != "orders"
	return p
}

func orders(e *estate) command {
	return e.instrumented("orders", "orders", nil,
		"gunicorn", "--bind", local(e.port("orders")), "--workers", "1",
		"--threads", "8", "--worker-tmp-dir", e.dir("orders"), "orders:app")
}

// worker returns the command of a worker. It uses threads, because the exporter of spans does not survive a fork.
func worker(name string) func(*estate) command {
	queue := map[string]string{mailer: "mail", reports: "reports"}[name]
	return func(e *estate) command {
		return e.instrumented("orders", name, nil, "celery", "--app", "orders:tasks",
			"worker", "--queues", queue, "--hostname", name+"@estate",
			"--pool", "threads", "--concurrency", "4", "--without-gossip", "--without-mingle", "--loglevel", "INFO")
	}
}

func feed(e *estate) command {
	return e.instrumented("feed", "feed", nil, "uvicorn", "--host", "127.0.0.1",
		"--port", strconv.Itoa(e.port("feed")), "--log-level", "warning", "feed:app")
}

func datasette(e *estate) command {
	dir := e.dir("datasette")
	return e.instrumented("datasette", "datasette", nil,
		"datasette", "serve", dir+"/shop.db", "--host", "127.0.0.1", "--port", strconv.Itoa(e.port("datasette")),
		"--plugins-dir", dir+"/plugins")
}

// initDatasette writes the plugin and the database of Datasette.
func initDatasette(e *estate) ([]command, error) {
	dir := e.dir("datasette")
	if err := os.MkdirAll(dir+"/plugins", 0o755); err != nil {
		return nil, err
	}
	for _, file := range []string{"otel_plugin.py", "shop.py"} {
		if err := e.writeConfig("datasette", file); err != nil {
			return nil, err
		}
	}
	if err := os.Rename(dir+"/otel_plugin.py", dir+"/plugins/otel_plugin.py"); err != nil {
		return nil, err
	}
	return []command{{path: "python3", args: []string{dir + "/shop.py", dir + "/shop.db"}, env: e.environment}}, nil
}

func kinto(e *estate) command {
	return e.instrumented("kinto", "kinto", nil, "kinto", "start", "--ini", e.dir("kinto")+"/kinto.ini",
		"--port", strconv.Itoa(e.port("kinto")))
}

// migrateKinto creates the tables of Kinto.
func migrateKinto(e *estate) ([]command, error) {
	return []command{
		{
			path: e.installed("kinto", "venv", "bin", "kinto"),
			args: []string{"migrate", "--ini", e.dir("kinto") + "/kinto.ini"},
			env:  e.environment,
		},
	}, nil
}

// systemCommand returns a command of a system package.
func (e *estate) systemCommand(pkg, name string, args ...string) command {
	p := packageNamed(pkg)
	env := append([]string(nil), e.environment...)
	if l := e.installer.libraries(p); l != "" {
		env = append(env, "LD_LIBRARY_PATH="+l)
	}
	return command{path: e.installer.systemProgram(p, name), args: args, env: env}
}

func redis(e *estate) command {
	return e.systemCommand("redis", "redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(e.port("redis")),
		"--save", "", "--appendonly", "no", "--dir", e.dir("redis"))
}

// postgresqlCommand returns a command of PostgreSQL, which refuses to run as root.
func (e *estate) postgresqlCommand(name string, args ...string) command {
	c := e.systemCommand("postgresql", name, args...)
	c.dir, c.user = e.dir("postgresql"), e.postgresUser
	return c
}

func postgresql(e *estate) command {
	dir := e.dir("postgresql")
	return e.postgresqlCommand("postgres", "-D", dir+"/data", "-p", strconv.Itoa(e.port("postgresql")), "-k", dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=60")
}

// initPostgresql creates the cluster.
func initPostgresql(e *estate) ([]command, error) {
	dir := e.dir("postgresql")
	if u := e.postgresUser; u != nil {
		if err := os.Chown(dir, int(u.Uid), int(u.Gid)); err != nil {
			return nil, fmt.Errorf("give %s to the user of PostgreSQL: %w", dir, err)
		}
	}
	return []command{e.postgresqlCommand("initdb", "-D", dir+"/data", "-U", "postgres", "-A", "trust",
		"--no-sync", "--no-locale", "-E", "UTF8")}, nil
}

// psql returns a command that executes statements in a database, without a link.
func (e *estate) psql(database string, statements ...string) command {
	args := []string{
		"-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", strconv.Itoa(e.port("postgresql")),
		"-U", "postgres", "-d", database,
	}
	for _, s := range statements {
		args = append(args, "-c", s)
	}
	return e.postgresqlCommand("psql", args...)
}

// The databases of Kinto and PostGraphile.
const (
	storeDatabase = "storedb"
	shopDatabase  = "shopdb"
)

func createDatabases(e *estate) ([]command, error) {
	schema, err := configFiles.ReadFile("config/shop.sql")
	if err != nil {
		return nil, err
	}
	return []command{
		e.psql("postgres", "CREATE DATABASE "+storeDatabase, "CREATE DATABASE "+shopDatabase),
		e.psql(shopDatabase, string(schema)),
	}, nil
}
