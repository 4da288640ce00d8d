// Command notices writes THIRD_PARTY_NOTICES: the licenses of all third-party software in bin/sibyl. go-licenses lists
// the Go packages that are linked, and Vite the npm packages that are bundled in the web UI. Command notices fails if a
// license is not known to be compatible with Apache-2.0, or if the jar of the JVM agent contains classes of unknown
// origin. `make notices` runs these tools and this command.
package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/jvm"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

// compatible lists the SPDX identifiers of licenses whose code may be part of a work under Apache-2.0. MPL-2.0 is
// compatible because it covers only its own files, and the notices tell recipients where to find their source.
var compatible = []string{
	"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "Unlicense",
}

// A component is a piece of third-party software.
type component struct {
	name, version, license string
	text                   string // of the license
	notice                 string // that the license requires copies to include
}

func run(args []string, out, errOut io.Writer) error {
	flags := flag.NewFlagSet("notices", flag.ContinueOnError)
	flags.SetOutput(errOut)
	goReport := flags.String("go", "bin/notices/go.tsv", "report of go-licenses, with go.tmpl")
	webReport := flags.String("web", "bin/notices/licenses.json", "report of Vite")
	pom := flags.String("pom", "agents/jvm/pom.xml", "project of the agent for the JVM")
	if err := flags.Parse(args); err != nil {
		return err
	}
	modules, err := goComponents(*goReport)
	if err != nil {
		return err
	}
	bundled, err := webComponents(*webReport)
	if err != nil {
		return err
	}
	shaded, err := jarComponents(jvm.Jar(), *pom)
	if err != nil {
		return err
	}
	standard, err := standardLibrary()
	if err != nil {
		return err
	}
	parts := []part{
		{"Go packages", "https://pkg.go.dev/NAME@VERSION", append(modules, standard)},
		{"npm packages in the web UI", "https://www.npmjs.com/package/NAME/v/VERSION", bundled},
		{"Libraries in the agent for the JVM", "https://central.sonatype.com/artifact/GROUP/ARTIFACT/VERSION", shaded},
		{"Headers in the probes of the kernel agent", "https://github.com/libbpf/libbpf", []component{libbpf}},
	}
	if err := check(parts); err != nil {
		return err
	}
	_, err = io.WriteString(out, write(parts))
	return err
}

// goComponents reads the components from a report of go-licenses. A package has one line per license.
func goComponents(report string) ([]component, error) {
	data, err := os.ReadFile(report)
	if err != nil {
		return nil, err
	}
	var all []component
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 4 {
			continue // the template ends with an empty line
		}
		c, err := goComponent(fields[0], fields[1], fields[2], fields[3])
		if err != nil {
			return nil, err
		}
		if last := len(all) - 1; last < 0 || all[last].name != c.name || all[last].text != c.text {
			all = append(all, c)
		} else if all[last].license != c.license {
			all[last].license += ", " + c.license
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s names no packages", report)
	}
	return all, nil
}

// goComponent returns the component for a Go package, with the texts of its license. path is the path of the license
// file.
func goComponent(name, version, path, license string) (component, error) {
	if license == "Unknown" && strings.HasPrefix(name, asmModule+"/") {
		dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", asmModule).Output()
		if err != nil {
			return component{}, fmt.Errorf("find %s: %w", asmModule, err)
		}
		name, path = asmModule, filepath.Join(strings.TrimSpace(string(dir)), "LICENSE")
	}
	c := component{name: name, version: version, license: license}
	if path == "Unknown" {
		return c, nil // check refuses it
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	c.text = string(text)
	if name == asmModule && strings.HasPrefix(c.text, "MIT No Attribution\n") {
		c.license = "MIT-0"
	}
	for _, pattern := range []string{"NOTICE*", "THIRD_PARTY_LICENSES/*"} {
		files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), pattern)) // err: a malformed pattern
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return c, err
			}
			c.notice += string(text) + "\n"
		}
	}
	return c, nil
}

// asmModule is under MIT-0, a license that go-licenses does not recognize.
const asmModule = "github.com/segmentio/asm"

// standardLibrary returns Go's standard library as a component, with the text of its license.
func standardLibrary() (component, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return component{}, fmt.Errorf("find Go: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "LICENSE"))
	return component{name: "the standard library", license: "BSD-3-Clause", text: string(text)}, err
}

// webComponents reads the npm packages from a report of Vite.
func webComponents(report string) ([]component, error) {
	data, err := os.ReadFile(report)
	if err != nil {
		return nil, err
	}
	var packages []struct{ Name, Version, Identifier, Text string }
	if err := json.Unmarshal(data, &packages); err != nil {
		return nil, fmt.Errorf("read %s: %w", report, err)
	}
	var all []component
	texts := make(map[string]string)
	for _, p := range packages {
		texts[p.Name] = p.Text
		all = append(all, component{name: p.Name, version: p.Version, license: p.Identifier, text: p.Text})
	}
	for i := range all {
		if all[i].text == "" {
			all[i].text = texts[sameAs[all[i].name]]
		}
	}
	return all, nil
}

// sameAs maps a package without the text of its license to a package with the text, by the same author.
var sameAs = map[string]string{"react-remove-scroll-bar": "react-remove-scroll"}

var (
	//go:embed texts/asm.txt
	asmText string
	//go:embed texts/nanojson.txt
	nanojsonText string
	//go:embed texts/libbpf.txt
	libbpfText string

	libbpf = component{name: "libbpf", license: "BSD-2-Clause", text: libbpfText}
)

// libraries lists the libraries in the jar by the folder of their classes, with the license texts of their sources.
var libraries = map[string]component{
	"agent/org/objectweb/asm/":  {name: "org.ow2.asm/asm", license: "BSD-3-Clause", text: asmText},
	"agent/com/grack/nanojson/": {name: "com.grack/nanojson", license: "Apache-2.0", text: nanojsonText},
}

var ours = regexp.MustCompile(`^(META-INF|(agent/)?io/github/sibyltrace/agent)/`)

// jarComponents returns the libraries whose classes are in the jar, with the versions in the pom file.
func jarComponents(jar []byte, pom string) ([]component, error) {
	project, err := os.ReadFile(pom)
	if err != nil {
		return nil, err
	}
	r, err := zip.NewReader(bytes.NewReader(jar), int64(len(jar)))
	if err != nil {
		return nil, fmt.Errorf("read the agent for the JVM: %w", err)
	}
	found := make(map[string]component)
	for _, f := range r.File {
		if strings.HasSuffix(f.Name, "/") || ours.MatchString(f.Name) {
			continue
		}
		folder := ""
		for of := range libraries {
			if strings.HasPrefix(f.Name, of) {
				folder = of
			}
		}
		if folder == "" {
			return nil, fmt.Errorf(
				"the agent for the JVM: where %s is from is unknown: add its library to deploy/notices", f.Name)
		}
		c := libraries[folder]
		_, artifact, _ := strings.Cut(c.name, "/")
		declared := regexp.MustCompile(`<artifactId>` + artifact + `</artifactId>\s*<version>([^<]+)<`)
		version := declared.FindSubmatch(project)
		if version == nil {
			return nil, fmt.Errorf("%s has no version of %s", pom, artifact)
		}
		c.version = string(version[1])
		found[folder] = c
	}
	return slices.SortedFunc(maps.Values(found), byName), nil
}

func byName(a, b component) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.text, b.text))
}

// A part lists the components of one kind.
type part struct {
	title, source string
	components    []component
}

// check returns an error that names each component without a license text, or with a license that is not known to be
// compatible.
func check(parts []part) error {
	var bad []error
	for _, p := range parts {
		for _, c := range p.components {
			for license := range strings.SplitSeq(c.license, ", ") {
				if !slices.Contains(compatible, license) {
					bad = append(bad, fmt.Errorf("%s %s: license %q is not known to be compatible with Apache-2.0",
						c.name, c.version, license))
				}
			}
			if c.text == "" && c.license != "Unlicense" { // the only one here that may be left out
				bad = append(bad, fmt.Errorf("%s %s: the text of its license is missing", c.name, c.version))
			}
		}
	}
	return errors.Join(bad...)
}

const rule = "--------------------------------------------------------------------------------\n"

// write returns the list of all components, followed by the license texts, each text only once.
func write(parts []part) string {
	var b strings.Builder
	b.WriteString("Sibyl contains this software by others, under its own licenses. Their texts follow the list.\n" +
		"Written by `make notices`.\n")
	licenses, notices := make(map[string][]string), make(map[string][]string)
	for _, p := range parts {
		fmt.Fprintf(&b, "\n%s. The source: %s\n", p.title, p.source)
		for _, c := range slices.SortedFunc(slices.Values(p.components), byName) {
			name := strings.TrimSpace(c.name + " " + c.version)
			fmt.Fprintf(&b, "  %s: %s\n", name, c.license)
			add(licenses, c.text, name)
			add(notices, c.notice, name)
		}
	}
	for _, texts := range []map[string][]string{licenses, notices} {
		for _, text := range slices.SortedFunc(maps.Keys(texts), func(a, b string) int {
			return slices.Compare(texts[a], texts[b])
		}) {
			fmt.Fprintf(&b, "\n%s%s\n\n%s\n", rule, strings.Join(texts[text], "\n"), text)
		}
	}
	return b.String()
}

// add adds name, a package with the license `text`, to the names of that text. It ignores empty lines around the text,
// and carriage returns.
func add(names map[string][]string, text, name string) {
	text = strings.Trim(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if text != "" {
		names[text] = append(names[text], name)
	}
}
