package archtest

// module is the prefix of all import paths of ours.
const module = "github.com/sibyl-trace/sibyl"

// rule says what the packages below a folder may do. Test files are free to import what they like, but for the rules
// about folders that only tests and cmd may import.
type rule struct {
	ours  []string // folders of this module that it may import, subfolders included; its own always
	other []string // modules of others that it may import; only looked at if pure
	pure  bool     // no clock, I/O, goroutine, lock, global state or unseeded randomness, and only the packages of pureStd
	timed bool     // may read the clock and start goroutines
}

// all stands for every folder.
const all = "*"

// rules holds one line per folder; the longest that fits a package's path counts. A folder without a line fails the test:
// say what it may do before it grows.
var rules = map[string]rule{
	"trace":               {pure: true, other: []string{"github.com/cespare/xxhash/v2"}}, // identities must not change with a Go release
	"cct":                 {pure: true, ours: []string{"trace"}, other: []string{"github.com/agnivade/levenshtein"}},
	"analysis":            {pure: true, ours: []string{"trace"}, other: []string{"gonum.org/v1/gonum", "github.com/DataDog/sketches-go"}},
	"search":              {pure: true, ours: []string{"trace", "cct", "analysis"}, other: []string{"gonum.org/v1/gonum", "github.com/agnivade/levenshtein"}},
	"ingest":              {timed: true, ours: []string{"trace", "internal/kv", "internal/listen"}},
	"store":               {ours: []string{"trace", "analysis", "cct", "search", "internal/kv"}},
	"engine":              {timed: true, ours: []string{"trace", "ingest", "analysis", "cct", "search", "store"}},
	"control":             {timed: true, ours: []string{"trace", "cct", "search", "agents/tracepoint/protocol"}},
	"notify":              {timed: true, ours: []string{"trace", "analysis", "search", "store", "words", "internal/units"}},
	"api":                 {ours: []string{"trace", "analysis", "cct", "search", "store", "engine", "control", "notify", "words", "internal/units", "ingest"}}, // ingest: to read kept traces, and for the names of what is counted
	"web":                 {},
	"agents":              {timed: true, ours: []string{"agents/tracepoint/protocol"}},
	"cmd":                 {timed: true, ours: []string{all}},
	"internal/units":      {}, // writes numbers for people
	"words":               {ours: []string{"trace", "analysis", "internal/units"}},
	"internal":            {},                                                                                                         // each folder below has a line of its own
	"internal/archtest":   {},                                                                                                         // parses; imports nothing
	"internal/invariants": {},                                                                                                         // a constant under a build tag; anybody may import it
	"internal/corpus":     {ours: []string{"trace", "internal/simapp", "internal/wire"}},                                              // makes testdata
	"internal/kv":         {timed: true},                                                                                              // opens databases for journal and store; waits for room on a full disk
	"internal/listen":     {timed: true},                                                                                              // bounds connections; tells the log of too many once in a while
	"internal/localize":   {timed: true, ours: []string{"trace", "ingest", "analysis", "cct", "search", "engine", "internal/simapp"}}, // the benchmark of the search; measures decisions
	"internal/wire":       {ours: []string{"trace"}},                                                                                  // writes traces in the formats that are read
	"internal/simapp":     {ours: []string{"trace", "cct"}},                                                                           // must know nothing of the search that it is used to judge
	"internal/sizegen":    {},                                                                                                         // payload sizes and latencies for the size model
	"internal/tracetest":  {ours: []string{"trace"}},                                                                                  // makes traces for tests and benchmarks of all packages

	// Makes the state that the web UI is tested with.
	"internal/seed": {timed: true, ours: []string{"trace", "analysis", "cct", "engine", "ingest", "search", "store", "internal/kv", "internal/simapp", "internal/wire"}},

	"agents/tracepoint/protocol": {}, // others' modules take it in: nothing but the standard library, and no clock
}

// forTestsAndCmd holds the folders that only tests, cmd and internal itself may import: what simulates or checks is no
// part of what it simulates or checks.
var forTestsAndCmd = []string{
	"internal/archtest", "internal/corpus", "internal/localize", "internal/simapp", "internal/sizegen", "internal/tracetest",
	"internal/wire",
}

// pureStd is what the pure packages may import of the standard library.
var pureStd = []string{
	"bytes", "cmp", "container/heap", "encoding/binary", "encoding/hex", "errors", "fmt", "iter", "maps", "math", "math/bits",
	"math/rand/v2", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8", "unique",
}

// clock holds the functions of package time that look at or wait for the clock.
var clock = []string{
	"Now", "Since", "Until", "Sleep", "After", "Tick", "NewTimer", "NewTicker", "AfterFunc",
}

// seeded holds what may be used of math/rand/v2: sources with a seed, and what is built on them. The functions of the
// package itself draw from a source that nobody seeded.
var seeded = []string{
	"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf",
}

// vagueNames say nothing about what a package is for.
var vagueNames = []string{
	"base", "common", "core", "helper", "helpers", "lib", "misc", "models", "pkg", "shared", "types", "util", "utils",
}

// stdNames holds the packages of ours that are called like one of the standard library's all the same.
var stdNames = map[string]string{
	"trace": "the word of the domain; runtime/trace is not used beside it",
}

// forbidden must not occur in any text file: places of the machines that the project was made on, and hosts of package
// registries. In two halves, so that this file does not hold them.
var forbidden = []string{
	".." + "/shared", ".lib" + "rary", "/wo" + "rk/", "/ro" + "ot/",
	"proxy.go" + "lang.org", "sum.go" + "lang.org", "registry.np" + "mjs.org", "py" + "pi.org", "python" + "hosted.org",
	"crates" + ".io", "maven" + ".org", "maven.ap" + "ache.org", "deb.deb" + "ian.org",
}
