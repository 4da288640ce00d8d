package estate

// registry names the client that installs a package. Each client uses the registry it is configured for and verifies
// the checksums that the registry provides.
type registry string

const (
	goModule registry = "go"    // go install; the checksum database
	pip      registry = "pip"   // pip install into a venv; hashes of the index
	npm      registry = "npm"   // npm install without install scripts; integrity fields
	maven    registry = "maven" // mvn dependency:copy-dependencies with strict checksums
	system   registry = "apt"   // an installed program, or one that apt-get downloads and dpkg unpacks below the cache
)

// packageInfo pins a program with its instrumentation.
type packageInfo struct {
	name     string // also its folder below the cache
	registry registry
	install  []string // arguments of the registry's client: module paths, requirements or coordinates, with versions
	programs []string // names of system programs
	licence  string   // of the first entry of install; OpenTelemetry is Apache-2.0
	reason   string
}

// Versions of OpenTelemetry for Python.
const (
	pythonSDK             = "1.45.1"
	pythonInstrumentation = "0.66b1"
)

// python returns the requirements of Python programs with the instrumentation of the libraries that they use.
func python(requirements []string, libraries ...string) []string {
	requirements = append(requirements,
		"opentelemetry-sdk=="+pythonSDK, "opentelemetry-exporter-otlp-proto-http=="+pythonSDK,
		"opentelemetry-distro=="+pythonInstrumentation)
	for _, l := range libraries {
		requirements = append(requirements, "opentelemetry-instrumentation-"+l+"=="+pythonInstrumentation)
	}
	return requirements
}

// packages is the table of pinned versions.
var packages = []packageInfo{
	{
		name: "caddy", registry: goModule, install: []string{"github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9"},
		licence: "Apache-2.0", reason: "gateway and load balancer with a tracing directive; emits SERVER spans only",
	},
	{
		name: "toxiproxy", registry: goModule, install: []string{"github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"},
		licence: "MIT", reason: "links with latency, jitter and resets; not instrumented",
	},
	{
		name:     "registry",
		registry: goModule,
		install:  []string{"github.com/distribution/distribution/v3/cmd/registry@v3.1.2"},
		licence:  "Apache-2.0",
		reason:   "container registry with built-in tracing, Redis as cache",
	},
	{
		name:     "node",
		registry: npm,
		install: []string{
			"verdaccio@6.3.2", "postgraphile@4.14.1", "@opentelemetry/auto-instrumentations-node@0.82.0",
			"@opentelemetry/api@1.10.0",
		},
		licence: "MIT",
		reason: "Verdaccio, a package registry with an uplink, of a version for Node 18 and later, " +
			"and PostGraphile, GraphQL over PostgreSQL, under Node auto-instrumentation",
	},
	{
		name:     "wiremock",
		registry: maven,
		install:  []string{"org.wiremock:wiremock:3.13.1"},
		licence:  "Apache-2.0",
		reason: "HTTP proxy and stub server, whose API switches errors on and off; the agent does not know the " +
			"renamed Jetty of wiremock-standalone",
	},
	{
		name:     "javaagent",
		registry: maven,
		install:  []string{"io.opentelemetry.javaagent:opentelemetry-javaagent:2.31.1"},
		licence:  "Apache-2.0",
		reason:   "instrumentation of Java programs",
	},
	{
		name:     "httpbin",
		registry: pip,
		install:  python([]string{"httpbin==0.10.4", "gunicorn==27.0.1"}, "flask", "jinja2", "logging"),
		licence:  "ISC",
		reason:   "Flask application under gunicorn, several instances",
	},
	{
		name:     "datasette",
		registry: pip,
		install:  python([]string{"datasette==0.65.5"}, "asgi", "sqlite3", "threading", "asyncio", "logging"),
		licence:  "Apache-2.0",
		reason:   "ASGI application over SQLite",
	},
	{
		name:     "kinto",
		registry: pip,
		install: python([]string{"kinto[postgresql]==26.5.0", "kinto-redis==2.1.0"}, "pyramid", "psycopg2",
			"sqlalchemy", "redis", "requests", "logging"),
		licence: "Apache-2.0",
		reason:  "Pyramid application over PostgreSQL and Redis",
	},
	{
		name: "orders", registry: pip,
		install: python([]string{
			"celery==5.6.3", "redis==6.4.0",
			"flask==3.1.3", "requests==2.32.5", "gunicorn==27.0.1",
		},
			"celery", "flask", "redis", "requests", "logging"),
		licence: "BSD-3-Clause", reason: "Flask application that queues tasks, and two Celery workers, over Redis",
	},
	{
		name: "feed", registry: pip,
		install: python([]string{"starlette==1.2.1", "uvicorn==0.52.4", "redis==6.4.0"},
			"starlette", "redis", "logging"),
		licence: "BSD-3-Clause", reason: "ASGI application under uvicorn with server-sent events",
	},
	{
		name: "names", registry: system, install: []string{"libnss-wrapper"},
		licence: "BSD-3-Clause", reason: "host names for Python and Node without a change of the machine",
	},
	{
		name:     "redis",
		registry: system,
		install:  []string{"redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1"},
		programs: []string{"redis-server"},
		licence:  "BSD-3-Clause",
		reason:   "cache of Kinto and of the container registry",
	},
	{
		name:     "postgresql",
		registry: system,
		install:  []string{"postgresql-15", "postgresql-client-15", "libpq5"},
		programs: []string{"postgres", "initdb", "psql"},
		licence:  "PostgreSQL",
		reason:   "database of Kinto and PostGraphile",
	},
}

// packageNamed returns the package with the given name. It panics if the table lacks it.
func packageNamed(name string) *packageInfo {
	for i := range packages {
		if packages[i].name == name {
			return &packages[i]
		}
	}
	panic("estate: no package is named " + name)
}
