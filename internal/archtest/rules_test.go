package archtest

// module is the prefix of the import paths of this repository.
const module = "github.com/sibyl-trace/sibyl"

// rule restricts the packages in and below a folder, except folders with their own rules. Test files may import any
// package.
type rule struct {
	folder string
	about  string   // line in the table of docs/ARCHITECTURE.md
	ours   []string // allowed packages of this repository; "x/..." includes packages below x
	other  []string // allowed modules; checked only if pure
	pure   bool     // no clock, I/O, goroutine, lock, global state or unseeded randomness, and only the packages of pureStd
	clock  bool     // may read the clock and start goroutines
	waits  bool     // may start goroutines, in groups that it waits for, so that equal input yields equal results
}

// everything stands for all packages listed above.
const everything = "..."

// rules lists the packages from the bottom up: a package may import only packages in the lines above its own.
// TestOrder checks this, and TestTable checks that docs/ARCHITECTURE.md contains this table. A folder without a rule
// fails the tests.
var rules = []rule{
	{folder: "internal/codec", pure: true, about: "reads and writes the bytes of saved state"},
	{folder: "internal/codec/plain", ours: []string{"internal/codec"}, about: "plain values in saved state, as CBOR"},
	{folder: "trace", pure: true, other: []string{"github.com/cespare/xxhash/v2"}, ours: []string{"internal/codec"}, about: "records, identities, dictionary"}, // identities must not change with a Go release
	{folder: "internal/units", about: "numbers for people"},
	{folder: "internal/terminal", about: "tables and colours on terminals"},
	{folder: "internal/pebbledb", clock: true, about: "opens databases; waits for space on a full disk"},
	{folder: "internal/connlimit", clock: true, about: "listeners that share a connection limit"},
	{folder: "internal/listener", clock: true, ours: []string{"internal/connlimit"}, about: "opens, serves and drains addresses over HTTP and gRPC"},
	{folder: "internal/gogocodec", about: "gRPC codec of Jaeger's messages"},
	{folder: "internal/refusal", about: "errors that refuse a request, over HTTP and gRPC"},
	{folder: "internal/metric", about: "samples of Prometheus metrics"},
	{folder: "internal/archtest", about: "this table, as tests"},

	{folder: "agents/tracepoint/protocol", about: "messages between agents and Sibyl; only the standard library, because other modules import it"},
	{folder: "agents/tracepoint/exchange", clock: true, ours: []string{"agents/tracepoint/protocol"}, about: "the agents' side of that protocol over HTTP"},
	{folder: "agents/kernel/waits", pure: true, about: "records of the kernel's probes to reports of waits"},
	{folder: "agents/kernel/untrusted", clock: true, about: "reads files and memory of processes that may be hostile"},
	{folder: "agents/kernel/symbols", ours: []string{"agents/kernel/untrusted"}, about: "names of functions in running processes"},
	{folder: "agents/kernel/bpf", about: "the kernel's probes, in C and compiled"},
	{folder: "agents/kernel/resource", about: "resource attributes of running processes"},
	{folder: "agents/kernel/join", ours: []string{"agents/kernel/waits", "agents/kernel/untrusted", "agents/kernel/resource"}, about: "waits of threads to spans of services"},
	{folder: "agents/kernel/otlp", clock: true, ours: []string{"agents/kernel/waits", "agents/kernel/join"}, about: "sends waits as spans"},
	{folder: "agents/kernel", clock: true, ours: []string{"agents/kernel/waits", "agents/kernel/untrusted", "agents/kernel/join", "agents/kernel/symbols", "agents/kernel/bpf"}, about: "the kernel agent: probes, targets, readings"},
	{folder: "agents/kernel/steer", clock: true, ours: []string{"agents/tracepoint/protocol", "agents/tracepoint/exchange", "agents/kernel/waits", "agents/kernel/symbols", "agents/kernel/join", "agents/kernel"}, about: "the kernel agent, steered by Sibyl"},
	{folder: "agents/jvm/classify/classtest", about: "class files and archives for tests"},
	{folder: "agents/jvm/classify", about: "an application's own classes: reads archives, decides by a trained model"},
	{folder: "agents/jvm", clock: true, about: "the JVM agent: the jar, and attaching it to running JVMs"},
	{folder: "agents/jvm/jvmtest", ours: []string{"agents/jvm"}, about: "programs in Java with the agent, for tests"},
	{folder: "agents", clock: true, ours: []string{"agents/tracepoint/protocol", "agents/tracepoint/exchange"}, about: "the Go library that enables tracepoints, a module of its own"},

	{folder: "analysis/stats", pure: true, other: []string{"gonum.org/v1/gonum", "github.com/DataDog/sketches-go"}, ours: []string{"internal/codec"}, about: "exact, mergeable statistics and tests"},
	{folder: "analysis", pure: true, ours: []string{"trace"}, about: "the identity of groups and problems"},
	{folder: "analysis/internal/scratch", pure: true, about: "reuses the memory of slices"},
	{folder: "analysis/internal/codec", pure: true, ours: []string{"internal/codec", "trace", "analysis"}, about: "writes and reads saved state"},
	{folder: "analysis/critpath", pure: true, ours: []string{"internal/codec", "trace", "analysis", "analysis/internal/scratch"}, about: "closed traces to critical paths"},
	{folder: "analysis/observation", pure: true, ours: []string{"internal/codec", "trace", "analysis/stats", "analysis", "analysis/internal/codec", "analysis/internal/scratch", "analysis/critpath"}, about: "paths to observations: what a request contributes"},
	{folder: "analysis/group", pure: true, other: []string{"gonum.org/v1/gonum"}, ours: []string{"trace", "analysis/stats", "analysis", "analysis/internal/codec", "analysis/observation"}, about: "request types, groups and their statistics over time"},
	{folder: "analysis/detect", pure: true, ours: []string{"trace", "analysis/stats", "analysis", "analysis/internal/codec", "analysis/observation", "analysis/group"}, about: "groups to ranked problems"},
	{folder: "analysis/history", pure: true, ours: []string{"internal/codec", "trace", "analysis/internal/scratch", "analysis/critpath"}, about: "calls by site and slice of time: what is kept, aged, skipped and encoded"},
	{folder: "analysis/compare", pure: true, other: []string{"gonum.org/v1/gonum"}, ours: []string{"trace", "analysis/stats", "analysis/internal/scratch", "analysis/critpath", "analysis/history"}, about: "ranks services by their additional cost over a history"},
	{folder: "analysis/onetrace", pure: true, other: []string{"gonum.org/v1/gonum"}, ours: []string{"trace", "analysis/stats", "analysis/internal/scratch", "analysis/critpath", "analysis/history", "analysis/compare"}, about: "explains one trace by its difference from normal ones"},
	{folder: "incident", pure: true, ours: []string{"trace", "analysis/history", "analysis/compare"}, about: "scores of services, epoch by epoch, to incidents"},
	{folder: "analysis/explain", pure: true, other: []string{"gonum.org/v1/gonum"}, ours: []string{"internal/codec", "trace", "analysis/stats", "analysis", "analysis/critpath", "analysis/observation", "analysis/group", "analysis/detect"}, about: "variables that account for a problem"},
	{folder: "cct", pure: true, other: []string{"github.com/agnivade/levenshtein"}, ours: []string{"internal/codec", "trace"}, about: "calling-context trees, matched by edit distance"},
	{folder: "search", pure: true, other: []string{"gonum.org/v1/gonum", "github.com/agnivade/levenshtein"}, ours: []string{"trace", "analysis", "analysis/group", "analysis/detect", "cct"}, about: "problems, trees and a budget in, a plan out"},
	{folder: "describe", ours: []string{"trace", "internal/units", "analysis/stats", "analysis", "analysis/group", "analysis/detect", "analysis/history", "analysis/compare", "analysis/onetrace", "analysis/explain", "incident"}, about: "names, sentences and profiles for reports and the API"},

	{folder: "ingest", ours: []string{"trace"}, about: "batches of spans, and why records are refused"},
	{folder: "ingest/internal/jsonwalk", ours: []string{"trace", "ingest"}, about: "walks JSON without building it"},
	{folder: "ingest/internal/protowriter", ours: nil, about: "writes protobuf messages field by field"},
	{folder: "ingest/zipkin", ours: []string{"trace", "ingest", "ingest/internal/jsonwalk", "ingest/internal/protowriter"}, about: "Zipkin JSON to OTLP"},
	{folder: "ingest/jaeger/translate", ours: []string{"trace"}, about: "Jaeger to OTLP, without loss"},
	{folder: "ingest/jaeger", ours: []string{"trace", "ingest", "ingest/internal/jsonwalk"}, about: "decodes Jaeger JSON"},
	{folder: "ingest/otlp", ours: []string{"trace", "ingest", "ingest/internal/jsonwalk", "ingest/internal/protowriter"}, about: "decodes OTLP, protobuf and JSON"},
	{folder: "ingest/assemble", clock: true, ours: []string{"trace", "ingest"}, about: "spans to closed traces, in files and online"},
	{folder: "ingest/file", clock: true, ours: []string{"trace", "ingest", "ingest/jaeger/translate", "ingest/jaeger", "ingest/otlp", "ingest/zipkin", "ingest/assemble"}, about: "files to closed traces"},
	{folder: "ingest/journal", clock: true, ours: []string{"trace", "internal/pebbledb"}, about: "requests on disk, in order"},
	{folder: "ingest/otlp/receiver", clock: true, ours: []string{"internal/connlimit", "internal/listener", "internal/refusal", "ingest"}, about: "OTLP over gRPC and HTTP, Zipkin over HTTP"},
	{folder: "ingest/jaeger/query", clock: true, ours: []string{"internal/gogocodec", "internal/refusal", "ingest", "ingest/jaeger/translate", "ingest/otlp", "ingest/otlp/receiver"}, about: "fetches traces from a running Jaeger"},

	{folder: "store", ours: []string{"internal/codec", "internal/codec/plain", "trace", "internal/pebbledb", "analysis", "analysis/group", "search"}, about: "checkpoints, decisions, exemplars, windows of past days, outbox"},
	{folder: "engine/spool", ours: []string{"internal/codec", "analysis/observation"}, about: "packed observations, in memory and in a temporary file"},
	{folder: "engine", waits: true, ours: []string{"agents/tracepoint/protocol", "internal/codec", "internal/codec/plain", "trace", "analysis/stats", "analysis", "analysis/critpath", "analysis/observation", "analysis/group", "analysis/detect", "analysis/history", "analysis/compare", "analysis/explain", "cct", "incident", "search", "ingest", "engine/spool"}, about: "the core, epoch by epoch: observations to decisions"},
	{folder: "engine/offline", ours: []string{"trace", "analysis/stats", "analysis", "analysis/critpath", "analysis/observation", "analysis/group", "analysis/detect", "analysis/history", "analysis/compare", "analysis/onetrace", "analysis/explain", "cct", "search", "ingest/assemble", "ingest/file", "engine/spool", "engine"}, about: "files to a report, or to a comparison"},
	{folder: "engine/backtest", ours: []string{"trace", "analysis/group", "analysis/history", "incident", "search", "ingest", "ingest/assemble", "ingest/file", "engine"}, about: "recorded traces to the incidents that the service would report"},
	{folder: "engine/live", clock: true, ours: []string{"trace", "internal/refusal", "analysis/stats", "analysis", "analysis/critpath", "analysis/observation", "analysis/group", "analysis/detect", "analysis/history", "search", "ingest", "ingest/otlp", "ingest/assemble", "ingest/journal", "store", "engine"}, about: "the running service: intake, shards, epochs"},

	{folder: "control", clock: true, ours: []string{"trace", "internal/refusal", "agents/tracepoint/protocol", "cct", "search"}, about: "agents: plans to them, feedback from them"},
	{folder: "control/opamp", clock: true, ours: []string{"internal/refusal", "agents/tracepoint/protocol", "control"}, about: "agents over OpAMP"},
	{folder: "control/sampling", clock: true, ours: []string{"trace", "internal/gogocodec"}, about: "answers Jaeger's remote samplers"},
	{folder: "notify", clock: true, ours: []string{"trace", "internal/units", "analysis", "analysis/detect", "analysis/compare", "incident", "search", "describe", "store", "engine"}, about: "webhooks and e-mails"},
	{folder: "notify/export", clock: true, ours: []string{"trace", "analysis/critpath"}, about: "critical paths as spans for tracing backends"},

	{folder: "api/access", about: "tokens and roles"},
	{folder: "api/contract", about: "types and server interface generated from openapi.yaml"},
	{folder: "report/postmortem", ours: []string{"internal/units", "api/contract"}, about: "one incident as Markdown or HTML"},
	{folder: "api/internal/query", ours: []string{"trace", "internal/refusal", "analysis"}, about: "parameters of requests, and pages of lists"},
	{folder: "api/internal/datafile", ours: []string{"internal/refusal"}, about: "files that hold what people wrote"},
	{folder: "api/internal/sent", ours: []string{"trace", "api/contract"}, about: "spans of stored traces as they were sent"},
	{folder: "api/internal/decisionlog", ours: []string{"trace", "search"}, about: "finds stored decisions"},
	{folder: "api/internal/render", ours: []string{"trace", "internal/units", "analysis", "analysis/group", "analysis/detect", "cct", "search", "describe", "engine", "notify", "api/contract", "api/internal/query", "api/internal/decisionlog"}, about: "the engine's state in the types of the contract"},
	{folder: "api/internal/epoch", ours: []string{"trace", "internal/refusal", "analysis", "analysis/group", "analysis/detect", "analysis/compare", "incident", "search", "describe", "engine", "engine/live", "notify", "api/contract", "api/internal/query", "api/internal/render"}, about: "reads the engine: its core, or a snapshot of an epoch"},
	{folder: "api/cases", ours: []string{"trace", "internal/units", "internal/refusal", "analysis/stats", "analysis", "analysis/observation", "analysis/group", "analysis/detect", "incident", "analysis/explain", "search", "describe", "store", "engine", "notify", "api/access", "api/contract", "report/postmortem", "api/internal/query", "api/internal/datafile", "api/internal/sent", "api/internal/decisionlog", "api/internal/render", "api/internal/epoch"}, about: "incidents and problems"},
	{folder: "api/requests", ours: []string{"trace", "internal/units", "internal/refusal", "analysis/stats", "analysis", "analysis/critpath", "analysis/observation", "analysis/group", "analysis/detect", "analysis/onetrace", "analysis/explain", "cct", "search", "describe", "ingest", "ingest/otlp", "store", "engine", "engine/live", "notify", "api/contract", "api/internal/query", "api/internal/sent", "api/internal/render", "api/internal/epoch"}, about: "groups of requests, their trees and traces"},
	{folder: "api/services", ours: []string{"trace", "internal/units", "internal/refusal", "analysis/stats", "analysis", "analysis/history", "incident", "describe", "engine", "notify", "api/contract", "api/internal/query", "api/internal/render", "api/internal/epoch"}, about: "services, deploys and objectives"},
	{folder: "api/plan", ours: []string{"trace", "internal/refusal", "analysis", "cct", "search", "describe", "engine", "control", "api/access", "api/contract", "api/internal/query", "api/internal/decisionlog", "api/internal/render", "api/internal/epoch"}, about: "tracepoints, agents and the search"},
	{folder: "api/operating", ours: []string{"trace", "internal/refusal", "internal/metric", "analysis", "search", "describe", "ingest/assemble", "store", "engine", "engine/live", "control", "notify", "api/access", "api/contract", "api/internal/query", "api/internal/datafile", "api/internal/decisionlog", "api/internal/render", "api/internal/epoch"}, about: "status, metrics, events, webhooks and saved views"},
	{folder: "api", ours: []string{"trace", "internal/refusal", "analysis/detect", "search", "ingest", "store", "engine", "notify", "api/access", "api/contract", "api/internal/epoch", "api/cases", "api/requests", "api/services", "api/plan", "api/operating"}, about: "the HTTP API: routes, middleware, and the handlers together"},
	{folder: "web", about: "the web UI: sources and built assets"},
	{folder: "client", ours: []string{"internal/units", "internal/terminal", "api/contract", "report/postmortem"}, about: "the client of the API, for the CLI and for benchmarks"},

	{folder: "replay", clock: true, ours: []string{"trace", "ingest/otlp", "ingest/file"}, about: "sends recorded traces as if they happened now"},
	{folder: "report/waterfall", ours: []string{"trace", "internal/units", "internal/terminal", "analysis/critpath"}, about: "one trace with its critical path"},
	{folder: "report", ours: []string{"trace", "internal/units", "internal/terminal", "analysis/stats", "analysis", "analysis/group", "analysis/detect", "analysis/explain", "search", "describe", "engine", "engine/offline", "engine/backtest", "agents/kernel/waits"}, about: "reports of analyses and of waits: table, JSON, HTML, profiles"},
	{folder: "config", ours: []string{"internal/units", "internal/terminal", "analysis/group", "analysis/detect", "incident", "search", "ingest", "ingest/assemble", "engine", "control/sampling", "notify"}, about: "one table of all configuration keys"},
	{folder: "server", clock: true, ours: []string{everything}, about: "the parts behind sibyl serve, joined"},

	{folder: "internal/cli", clock: true, ours: []string{"trace", "internal/units", "internal/terminal", "analysis/critpath", "ingest/file", "ingest/assemble"}, about: "the command line of sibyl and of sibylbench"},
	{folder: "deploy", about: "builds the container image"},
	{folder: "internal/testkit/sim", ours: []string{"trace", "cct", "ingest"}, about: "simulated applications; knows nothing of the search it is used to judge"},
	{folder: "internal/testkit/simplan", ours: []string{"trace", "search", "internal/testkit/sim"}, about: "plans of the search for simulated applications"},
	{folder: "internal/testkit/tracetest", ours: []string{"trace"}, about: "traces for tests and benchmarks"},
	{folder: "internal/testkit/tracetext", ours: []string{"trace"}, about: "traces as text, for tests"},
	{folder: "internal/testkit/tracegen", ours: []string{"trace", "internal/testkit/tracetext"}, about: "writes traces in every format that is read"},
	{folder: "internal/testkit/treetext", ours: []string{"trace", "cct"}, about: "calling-context trees as text, for tests"},
	{folder: "internal/testkit/transfergen", about: "payload sizes and latencies for the size model"},
	{folder: "internal/testkit/oracle", ours: []string{"trace", "analysis", "analysis/critpath", "analysis/observation"}, about: "a second implementation of critical paths and observations, for tests"},
	{folder: "internal/testkit/requests", ours: []string{"trace", "analysis", "analysis/critpath", "analysis/observation", "internal/testkit/transfergen"}, about: "observations for tests and benchmarks"},
	{folder: "internal/testkit/livetest", clock: true, ours: []string{"trace", "ingest", "ingest/otlp", "ingest/journal", "store", "engine/live", "engine/backtest", "internal/pebbledb", "internal/testkit/tracegen"}, about: "runs a service in tests, with a clock that they set"},
	{folder: "bench/eval/yardstick", pure: true, ours: []string{"search"}, about: "strategies that published ones are compared with"},
	{folder: "bench/fixtures", clock: true, ours: []string{everything}, about: "generators of testdata and of a state for UI tests"},
	{folder: "bench", clock: true, ours: []string{everything}, about: "a module of its own with sibylbench: throughput, accuracy, the demo, all that judges the product"},

	{folder: "cmd", clock: true, ours: []string{everything}, about: "the program sibyl: flags and wiring"},
}

// pureStd lists the packages of the standard library that pure packages may import.
var pureStd = []string{
	"bytes", "cmp", "container/heap", "encoding/binary", "encoding/hex", "errors", "fmt", "iter", "maps", "math", "math/bits",
	"math/rand/v2", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8", "unique",
}

// clock lists the functions of package time that read the clock or wait.
var clock = []string{
	"Now", "Since", "Until", "Sleep", "After", "Tick", "NewTimer", "NewTicker", "AfterFunc",
}

// seeded lists the allowed names of math/rand/v2: seeded sources and the types that use them. The top-level functions
// use an unseeded source.
var seeded = []string{
	"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf",
}

// vagueNames don't describe the purpose of a package.
var vagueNames = []string{
	"base", "common", "core", "helper", "helpers", "lib", "misc", "models", "pkg", "shared", "types", "util", "utils",
}

// stdNames lists packages whose names also occur in the standard library, with reasons.
var stdNames = map[string]string{
	"trace": "the term of the domain; no file uses runtime/trace as well",
}

// forbidden lists strings that must not occur in any text file: paths of development machines and hosts of package
// registries. They are split so that this file doesn't contain them.
var forbidden = []string{
	".." + "/shared", ".lib" + "rary", "/wo" + "rk/", "/ro" + "ot/",
	"proxy.go" + "lang.org", "sum.go" + "lang.org", "registry.np" + "mjs.org", "py" + "pi.org", "python" + "hosted.org",
	"crates" + ".io", "maven" + ".org", "maven.ap" + "ache.org", "deb.deb" + "ian.org",
}
