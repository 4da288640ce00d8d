package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify"
)

// debian reads programs and libraries from Debian packages, which apt downloads into a folder. Nothing is installed.
type debian struct {
	folder string
	index  map[string]*debianPackage // by name, and by the names that packages provide
	jars   map[string]classify.Source
}

// debianPackage is a binary package.
type debianPackage struct {
	name, source, version string
	depends               [][]string // alternatives of each dependency
	content               *content   // nil until it is read
}

// content holds the relevant files of a package.
type content struct {
	Jars       []string // paths below the root; links are left out
	Repository []string // jars in Maven's layout, which may be copies of others
	Scripts    []script
}

// script is a text that may start a program.
type script struct{ Path, Text string }

func openDebian(ctx context.Context, folder string) (*debian, error) {
	if err := os.MkdirAll(filepath.Join(folder, "packages"), 0o700); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "apt-cache", "dumpavail").Output()
	if err != nil {
		return nil, fmt.Errorf("apt-cache dumpavail: %w", err)
	}
	d := &debian{folder: folder, index: make(map[string]*debianPackage), jars: make(map[string]classify.Source)}
	provided := make(map[string]*debianPackage)
	for stanza := range bytes.SplitSeq(out, []byte("\n\n")) {
		f := fields(stanza)
		p := &debianPackage{
			name: f["Package"], version: f["Version"], depends: dependencies(f["Pre-Depends"] + "," + f["Depends"]),
		}
		if p.source, _, _ = strings.Cut(f["Source"], " "); p.source == "" {
			p.source = p.name
		}
		if p.name == "" || d.index[p.name] != nil {
			continue
		}
		d.index[p.name] = p
		for _, alternatives := range dependencies(f["Provides"]) {
			provided[alternatives[0]] = p
		}
	}
	for name, p := range provided {
		if d.index[name] == nil {
			d.index[name] = p
		}
	}
	if len(d.index) == 0 {
		return nil, errors.New("apt knows no packages: run apt-get update")
	}
	return d, nil
}

func fields(stanza []byte) map[string]string {
	f := make(map[string]string)
	for line := range strings.Lines(string(stanza)) {
		if name, value, ok := strings.Cut(line, ":"); ok && line[0] != ' ' {
			f[name] = strings.TrimSpace(value)
		}
	}
	return f
}

// dependencies parses a list like "a (>= 1), b | c:any".
func dependencies(list string) [][]string {
	var all [][]string
	for item := range strings.SplitSeq(list, ",") {
		var names []string
		for alternative := range strings.SplitSeq(item, "|") {
			if f := strings.Fields(alternative); len(f) > 0 {
				name, _, _ := strings.Cut(f[0], ":")
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			all = append(all, names)
		}
	}
	return all
}

// isJava reports whether a package may contain classes of an application. The JDK and native libraries do not.
func isJava(name string) bool {
	for _, prefix := range []string{
		"openjdk-", "default-j", "java-common", "ca-certificates-java", "libc6", "libgcc", "libstdc",
	} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return !strings.HasPrefix(name, "lib") || strings.Contains(name, "java") || strings.Contains(name, "jni") ||
		strings.Contains(name, "clojure") ||
		strings.Contains(name, "scala") || strings.Contains(name, "groovy") || strings.Contains(name, "maven")
}

// closure returns a package and its direct and indirect dependencies.
func (d *debian) closure(name string) ([]*debianPackage, error) {
	p := d.index[name]
	if p == nil {
		return nil, fmt.Errorf("apt does not know the package %s", name)
	}
	all := []*debianPackage{p}
	for i := 0; i < len(all); i++ {
		for _, alternatives := range all[i].depends {
			for _, a := range alternatives {
				if q := d.index[a]; q != nil {
					if isJava(q.name) && !slices.Contains(all, q) && d.leadsToJava(q) {
						all = append(all, q)
					}
					break
				}
			}
		}
	}
	return all, nil
}

// leadsToJava reports whether a package can have jars. Programs and libraries of Java can, by their names, and so can
// their siblings.
func (d *debian) leadsToJava(p *debianPackage) bool {
	if strings.HasPrefix(p.name, "lib") {
		return true
	}
	for _, alternatives := range p.depends {
		for _, a := range alternatives {
			if strings.Contains(a, "java") || strings.Contains(a, "-jre") {
				return true
			}
		}
	}
	return strings.Contains(p.name, "java")
}

// download downloads packages that are not there yet.
func (d *debian) download(ctx context.Context, packages []*debianPackage) error {
	arguments := []string{"download", "--quiet"}
	for _, p := range packages {
		if p.file(d) == "" {
			arguments = append(arguments, p.name)
		}
	}
	if len(arguments) == 2 {
		return nil
	}
	c := exec.CommandContext(ctx, "apt-get", arguments...)
	c.Dir = d.packages()
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get download: %w: %.500s", err, out)
	}
	return nil
}

// packages returns the folder of the downloaded packages.
func (d *debian) packages() string { return filepath.Join(d.folder, "packages") }

// file returns the downloaded file, or "" if there is no such file.
func (p *debianPackage) file(d *debian) string {
	files, err := filepath.Glob(filepath.Join(d.packages(), p.name+"_*.deb"))
	if err != nil || len(files) == 0 {
		return ""
	}
	return files[0]
}

// read reads the jars and scripts of a downloaded package. It caches the result, since unpacking takes long.
func (d *debian) read(ctx context.Context, p *debianPackage) error {
	if p.content != nil {
		return nil
	}
	p.content = new(content)
	list := p.file(d) + ".json"
	if data, err := os.ReadFile(list); err == nil {
		return json.Unmarshal(data, p.content)
	}
	if err := d.unpack(ctx, p, p.file(d)); err != nil {
		return err
	}
	if len(p.content.Jars) == 0 {
		p.content.Jars = p.content.Repository
	}
	data, err := json.Marshal(p.content)
	if err != nil {
		return err
	}
	return os.WriteFile(list, data, 0o600)
}

// unpack writes the jars of a package below the root, and keeps its scripts.
func (d *debian) unpack(ctx context.Context, p *debianPackage, file string) error {
	c := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	for t := tar.NewReader(bufio.NewReader(out)); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(err, c.Wait())
		}
		if err := d.keep(p, h, t); err != nil {
			return errors.Join(err, c.Wait())
		}
	}
	return c.Wait()
}

func (d *debian) keep(p *debianPackage, h *tar.Header, content io.Reader) error {
	name := path.Clean(strings.TrimPrefix(h.Name, "./"))
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%s: leaves the folder", h.Name)
	}
	target := filepath.Join(d.folder, "root", name)
	isJar := strings.HasSuffix(name, ".jar")
	switch {
	case h.Typeflag == tar.TypeReg && isJar:
		if strings.HasPrefix(name, "usr/share/maven-repo/") {
			p.content.Repository = append(p.content.Repository, name)
		} else {
			p.content.Jars = append(p.content.Jars, name)
		}
		if _, err := os.Stat(target); err == nil {
			return nil
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		data, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o600)
	case h.Typeflag == tar.TypeReg && mayStart(name) && h.Size < 1<<18:
		data, err := io.ReadAll(content)
		p.content.Scripts = append(p.content.Scripts, script{name, string(data)})
		return err
	case h.Typeflag == tar.TypeSymlink && mayStart(name):
		p.content.Scripts = append(p.content.Scripts, script{name, "-jar " + h.Linkname})
	}
	return nil
}

// mayStart reports whether a file may start a program.
func mayStart(name string) bool {
	return strings.HasPrefix(name, "usr/bin/") || strings.HasPrefix(name, "usr/games/") ||
		strings.HasSuffix(name, ".sh") ||
		strings.HasPrefix(name, "usr/share/") && strings.Contains(name, "/bin/") ||
		strings.HasSuffix(name, ".desktop") || strings.HasSuffix(name, ".service")
}

// source returns the classes of a jar below the root.
func (d *debian) source(name string) (classify.Source, error) {
	if s, ok := d.jars[name]; ok {
		return s, nil
	}
	read, err := classify.Read([]string{filepath.Join(d.folder, "root", name)}, "")
	if err != nil {
		return classify.Source{}, err
	}
	var s classify.Source
	if len(read) == 1 && len(read[0].Sources) == 1 {
		s = read[0].Sources[0]
		s.Path = "/" + name
	}
	d.jars[name] = s
	return s, nil
}

// deployment reads a program with its libraries. If it does not fit into the set, it also returns the reason.
func (d *debian) deployment(ctx context.Context, a application) (*labelled, string, error) {
	packages, err := d.closure(a.name)
	if err != nil {
		return nil, err.Error(), nil
	}
	if err := d.download(ctx, packages); err != nil {
		return nil, "", err
	}
	own := make(map[string]bool) // paths of sources
	var scripts []script
	result := &classify.Deployment{Name: a.name}
	for _, p := range packages {
		if err := d.read(ctx, p); err != nil {
			return nil, "", err
		}
		if p.source == packages[0].source {
			scripts = append(scripts, p.content.Scripts...)
		}
		for _, name := range p.content.Jars {
			s, err := d.source(name)
			if err != nil {
				return nil, "", err
			}
			if len(s.Classes) > 0 && !own[s.Path] {
				result.Sources = append(result.Sources, s)
				own[s.Path] = p.source == packages[0].source
			}
		}
	}
	result.Main = mainClass(a.name, scripts, result, own)
	l := &labelled{a, result, func(s *classify.Source, _ string) bool { return own[s.Path] }}
	return l, l.unfit(), nil
}

// Minimum numbers of own and other classes. Smaller applications say little.
const (
	minOwn     = 10
	minForeign = 100
)

// unfit returns the reason for leaving an application out of the set, or "" if it fits.
func (l *labelled) unfit() string {
	own, foreign := 0, 0
	for i := range l.Sources {
		for _, c := range l.Sources[i].Classes {
			if l.owns(&l.Sources[i], c.Package()) {
				own++
			} else {
				foreign++
			}
		}
	}
	switch {
	case own < minOwn:
		return fmt.Sprintf("only %d own classes", own)
	case foreign < minForeign:
		return fmt.Sprintf("only %d classes of libraries", foreign)
	case l.Main == "" && l.kind == "debian":
		return "no script and no manifest names a main class"
	}
	return ""
}

var (
	property  = regexp.MustCompile(`-D\S+`)
	qualified = regexp.MustCompile(`[A-Za-z_][\w$]*([./][A-Za-z_][\w$]*)+`)
	jarOption = regexp.MustCompile(`-jar\s+\S*?([^/\s"']+\.jar)`)
)

// mainClass returns the class that the scripts of a package start. It is the first name of a class in a script with the
// program's name, or in another script, or in the manifest of the jar that the script starts.
func mainClass(name string, scripts []script, d *classify.Deployment, own map[string]bool) string {
	slices.SortStableFunc(scripts, func(a, b script) int { return rank(name, a.Path) - rank(name, b.Path) })
	classes := make(map[string]bool)
	for i := range d.Sources {
		for _, c := range d.Sources[i].Classes {
			classes[c.Name] = true
		}
	}
	for _, s := range scripts {
		for _, token := range qualified.FindAllString(property.ReplaceAllString(s.Text, ""), -1) {
			if token = strings.ReplaceAll(token, "/", "."); classes[token] {
				return token
			}
		}
		for _, m := range jarOption.FindAllStringSubmatch(s.Text, -1) {
			for i := range d.Sources {
				if path.Base(d.Sources[i].Path) == m[1] && d.Sources[i].MainClass != "" {
					return d.Sources[i].MainClass
				}
			}
		}
	}
	best := ""
	for i := range d.Sources {
		s := &d.Sources[i]
		if own[s.Path] && s.MainClass != "" && (best == "" || strings.Contains(path.Base(s.Path), name)) {
			best = s.MainClass
		}
	}
	return best
}

// rank orders scripts: first the script with the program's name, then programs, then others.
func rank(name, file string) int {
	switch {
	case path.Base(file) == name:
		return 0
	case strings.HasPrefix(file, "usr/bin/"), strings.HasPrefix(file, "usr/games/"):
		return 1
	}
	return 2
}
