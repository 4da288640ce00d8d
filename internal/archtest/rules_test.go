package archtest

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// module is the prefix of the import paths of this repository.
const module = "github.com/sibyl-trace/sibyl"

// rule restricts the packages in and below a folder, except folders with their own rules. Test files may import any
// package.
type rule struct {
	folder string
	ours   []string // allowed packages of this repository
	all    bool     // may import the packages of all lines above
	pure   bool     // no clock, I/O, goroutine, lock, global state or unseeded randomness; see pureStd and pureModules
	clock  bool     // may read the clock and start goroutines
	waits  bool     // may start goroutines, in groups that it waits for, so that equal input yields equal results
}

var row = regexp.MustCompile("^\\| `(\\S+)` \\| (pure|clock|waits|) \\| (.+) \\| .+ \\|\n$")

// rules returns the rules, which are the table in docs/ARCHITECTURE.md. It lists the packages from the bottom up: a
// package may import only packages in the lines above its own. TestOrder checks this. A folder without a rule fails the
// tests.
var rules = sync.OnceValue(func() (all []rule) {
	doc, err := fs.ReadFile(repository, "docs/ARCHITECTURE.md")
	if err != nil {
		panic(err)
	}
	_, table, _ := strings.Cut(string(doc), "<!-- rules: ")
	table, _, _ = strings.Cut(table, "<!-- end of rules -->")
	for i, line := range slices.Collect(strings.Lines(table)) {
		if i < 3 { // the comment and the head of the table
			continue
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			panic("docs/ARCHITECTURE.md: not a rule: " + line)
		}
		all = append(all, rule{
			folder: m[1],
			ours:   quoted(m[3]),
			all:    m[3] == "all above",
			pure:   m[2] == "pure",
			clock:  m[2] == "clock",
			waits:  m[2] == "waits",
		})
	}
	return all
})

// quoted returns the texts in backquotes.
func quoted(text string) (found []string) {
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			found = append(found, part)
		}
	}
	return found
}

// pureModules lists the modules that pure packages may import.
var pureModules = map[string][]string{
	"trace":             {"github.com/cespare/xxhash/v2"}, // identities must not change with a Go release
	"analysis/stats":    {"gonum.org/v1/gonum", "github.com/DataDog/sketches-go"},
	"analysis/group":    {"gonum.org/v1/gonum"},
	"analysis/compare":  {"gonum.org/v1/gonum"},
	"analysis/onetrace": {"gonum.org/v1/gonum"},
	"analysis/explain":  {"gonum.org/v1/gonum"},
	"cct":               {"github.com/agnivade/levenshtein"},
	"search":            {"gonum.org/v1/gonum", "github.com/agnivade/levenshtein"},
}

// pureStd lists the packages of the standard library that pure packages may import.
var pureStd = []string{
	"bytes", "cmp", "container/heap", "encoding/binary", "encoding/hex", "errors", "fmt", "iter", "maps", "math",
	"math/bits", "math/rand/v2", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8", "unique",
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
