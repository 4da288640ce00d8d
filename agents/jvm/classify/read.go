package classify

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Limits on reading, far above real applications. Archives may be hostile, so nothing is unpacked to disk.
const (
	maxEntries     = 2_000_000 // files in all archives and folders
	maxClass       = 16 << 20  // bytes of a class file
	maxText        = 1 << 20   // bytes of a manifest or of pom.properties
	maxCoordinates = 1000      // per source
	maxNested      = 128 << 20 // bytes of a compressed archive within another archive; it is unpacked in memory
	maxBytes       = 8 << 30   // bytes unpacked in total
	maxDepth       = 3         // archives in archives: a jar in a war in an ear
)

// Read reads deployments from archives and folders. Each war, Spring Boot jar, and folder with WEB-INF or BOOT-INF is a
// separate deployment. All other jars and folders together form one deployment, in the order of the class path.
//
// main is the class where the application starts. If main is empty, Read uses the first main class in a manifest. It
// skips broken and hostile content, and reports it as a problem of the deployment. Read returns an error only if a path
// cannot be read at all, or if a limit on the total size is exceeded.
func Read(paths []string, main string) ([]*Deployment, error) {
	r := &input{classPath: &Deployment{Name: "class path"}, bytes: maxBytes, entries: maxEntries}
	for _, p := range paths {
		if err := r.path(p); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	if len(r.classPath.Sources) > 0 {
		if len(paths) == 1 {
			r.classPath.Name = paths[0]
		}
		r.deployments = append(r.deployments, r.classPath)
	}
	for _, d := range r.deployments {
		d.begin(main)
	}
	return r.deployments, nil
}

// begin sets d.Main to main or, if that is empty, to the first main class in the manifests of the sources or d.Outer.
func (d *Deployment) begin(main string) {
	for i := range d.Sources {
		if main == "" && d.Sources[i].Kind != Library {
			main = d.Sources[i].MainClass
		}
	}
	if d.Outer != nil && main == "" {
		main = d.Outer.MainClass
	}
	d.Main = main
}

// input reads archives and folders.
type input struct {
	deployments []*Deployment
	classPath   *Deployment
	bytes       int64 // number of bytes that may still be unpacked
	entries     int   // number of entries that may still be read
}

// entry is a file of an archive or a folder.
type entry struct {
	name string
	size int64 // according to the archive, which may be wrong
	open func() (io.ReadCloser, error)
	zip  *zip.File // nil for a file on disk
}

// tree is an archive or a folder, with its files.
type tree struct {
	path    string
	archive bool
	entries []entry
}

var (
	errEntries = fmt.Errorf("more than %d files: give the folders of the application only", maxEntries)
	errBytes   = fmt.Errorf("more than %d GiB of unpacked class files and archives", maxBytes>>30)
)

func (r *input) path(p string) error {
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return pathError(err)
	}
	if real, err = filepath.Abs(real); err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return pathError(err)
	}
	if info.IsDir() {
		t, err := r.folder(real)
		if err != nil {
			return err
		}
		return r.content(t)
	}
	return r.file(real)
}

// pathError removes the path from an error, because the caller adds it.
func pathError(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// file reads an archive on disk.
func (r *input) file(path string) error {
	z, err := zip.OpenReader(path)
	if err != nil {
		return archiveError(err)
	}
	defer func() { _ = z.Close() }()
	t, err := r.archive(path, &z.Reader)
	if err != nil {
		return err
	}
	return r.content(t)
}

func archiveError(err error) error {
	if errors.Is(err, zip.ErrFormat) {
		return errors.New("neither a jar, a war or another zip archive nor a folder")
	}
	return pathError(err)
}

func (r *input) archive(path string, z *zip.Reader) (*tree, error) {
	if r.entries -= len(z.File); r.entries < 0 {
		return nil, errEntries
	}
	t := &tree{path: filepath.ToSlash(path), archive: true, entries: make([]entry, 0, len(z.File))}
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, "/") {
			t.entries = append(t.entries,
				entry{name: f.Name, size: int64(min(f.UncompressedSize64, 1<<62)), open: f.Open, zip: f})
		}
	}
	return t, nil
}

// folder returns the files below a folder. It follows symbolic links to files, but not to folders, because these may
// form cycles.
func (r *input) folder(root string) (*tree, error) {
	t := &tree{path: filepath.ToSlash(root)}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if r.entries--; r.entries < 0 {
			return errEntries
		}
		info, err := os.Stat(p)
		if err != nil || !info.Mode().IsRegular() {
			return nil // a dangling link, a socket
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		t.entries = append(t.entries, entry{
			name: filepath.ToSlash(name), size: info.Size(), open: func() (io.ReadCloser, error) { return os.Open(p) },
		})
		return nil
	})
	return t, err
}

// content adds the contents of a tree, either as a separate deployment or as sources of the class path.
func (r *input) content(t *tree) error {
	for _, inf := range []string{"BOOT-INF", "WEB-INF"} {
		if t.has(inf + "/") {
			return r.deployment(t, inf)
		}
	}
	if t.archive && (t.hasClasses() || !t.hasArchives()) {
		return r.source(r.classPath, t, Jar, "")
	}
	if !t.archive && t.hasClasses() {
		if err := r.source(r.classPath, t, Folder, ""); err != nil {
			return err
		}
	}
	return r.archives(r.classPath, t, func(string) bool { return true }, Jar, 1)
}

func (t *tree) has(prefix string) bool {
	return slices.ContainsFunc(t.entries, func(e entry) bool { return strings.HasPrefix(e.name, prefix) })
}

func (t *tree) hasClasses() bool {
	return slices.ContainsFunc(t.entries, func(e entry) bool { return strings.HasSuffix(e.name, ".class") })
}

func (t *tree) hasArchives() bool {
	return slices.ContainsFunc(t.entries, func(e entry) bool { return isArchive(e.name) })
}

func isArchive(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return ext == ".jar" || ext == ".war" || ext == ".ear"
}

// deployment adds t as a deployment. t must be a war, a Spring Boot jar or an unpacked one, with classes and libraries
// in the folder inf. The root of t contains a launcher or static files.
func (r *input) deployment(t *tree, inf string) error {
	d := &Deployment{Name: t.path}
	r.deployments = append(r.deployments, d)
	outer := &Source{Path: t.path, Kind: Library}
	if err := r.metadata(outer, t, ""); err != nil {
		return err
	}
	d.Outer = outer
	if err := r.source(d, t, Folder, inf+"/classes/"); err != nil {
		return err
	}
	if t.archive && inf == "BOOT-INF" {
		if err := r.source(d, t, Library, ""); err != nil { // the launcher
			return err
		}
	}
	return r.archives(d, t, func(name string) bool { return strings.HasPrefix(name, inf+"/lib") }, Library, 1)
}

// archives adds the archives in t with wanted names as sources of d. Broken archives become problems of d. archives
// returns an error only if a limit on the total is exceeded.
func (r *input) archives(d *Deployment, t *tree, wanted func(name string) bool, kind Kind, depth int) error {
	for _, e := range t.entries {
		if !isArchive(e.name) || !wanted(e.name) {
			continue
		}
		err := r.nested(d, t, e, kind, depth)
		if errors.Is(err, errEntries) || errors.Is(err, errBytes) {
			return err
		}
		if err != nil {
			d.problem(fmt.Sprintf("%s: %v", t.join(e.name), err))
		}
	}
	return nil
}

// join returns the path of an entry.
func (t *tree) join(name string) string {
	if t.archive {
		return t.path + "!/" + name
	}
	return t.path + "/" + name
}

func (r *input) nested(d *Deployment, t *tree, e entry, kind Kind, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("archives are read %d levels deep", maxDepth)
	}
	path := t.join(e.name)
	if !t.archive {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		z, err := zip.OpenReader(path)
		if err != nil {
			return archiveError(err)
		}
		defer func() { _ = z.Close() }()
		return r.nestedContent(d, path, &z.Reader, kind, depth)
	}
	data, err := r.read(e, maxNested)
	if err != nil {
		return err
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return archiveError(err)
	}
	return r.nestedContent(d, path, z, kind, depth)
}

func (r *input) nestedContent(d *Deployment, path string, z *zip.Reader, kind Kind, depth int) error {
	t, err := r.archive(path, z)
	if err != nil {
		return err
	}
	if kind == Jar && (t.has("WEB-INF/") || t.has("BOOT-INF/")) {
		return r.content(t)
	}
	if err := r.source(d, t, kind, ""); err != nil || t.hasClasses() {
		return err
	}
	return r.archives(d, t, func(string) bool { return true }, kind, depth+1)
}

// source adds the classes of t below prefix as a source of d. If there are no classes, it adds nothing.
func (r *input) source(d *Deployment, t *tree, kind Kind, prefix string) error {
	s := Source{Path: strings.TrimSuffix(t.path, "/"), Kind: kind}
	if prefix != "" {
		s.Path = strings.TrimSuffix(t.join(prefix), "/")
	}
	if err := r.metadata(&s, t, prefix); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, e := range t.entries {
		name, ok := strings.CutPrefix(e.name, prefix)
		if !ok || !isClass(name) || prefix == "" &&
			(strings.HasPrefix(name, "BOOT-INF/") || strings.HasPrefix(name, "WEB-INF/")) {
			continue
		}
		if seen[name] {
			d.problem(fmt.Sprintf("%s: occurs more than once; the first counts", t.join(e.name)))
			continue
		}
		seen[name] = true
		c, err := r.class(e, name)
		if errors.Is(err, errBytes) {
			return err
		}
		if err != nil {
			d.problem(fmt.Sprintf("%s: %v", t.join(e.name), err))
			continue
		}
		s.Classes = append(s.Classes, c)
	}
	if len(s.Classes) > 0 {
		sorting.Slice(s.Classes, func(a, b Class) int { return strings.Compare(a.Name, b.Name) })
		d.Sources = append(d.Sources, s)
	}
	return nil
}

// isClass reports whether a JVM could load a class from the entry called name. It returns false for module descriptors
// and for entries in META-INF, because META-INF/versions repeats other classes.
func isClass(name string) bool {
	return strings.HasSuffix(name, ".class") && !strings.HasPrefix(name, "META-INF/") &&
		!strings.HasSuffix(name, "module-info.class")
}

func (r *input) class(e entry, name string) (Class, error) {
	data, err := r.read(e, maxClass)
	if err != nil {
		return Class{}, err
	}
	c, err := ParseClass(data)
	if err != nil {
		return Class{}, err
	}
	if want := strings.ReplaceAll(strings.TrimSuffix(name, ".class"), "/", "."); c.Name != want {
		return Class{}, fmt.Errorf("contains the class %q, which no JVM would load from there", c.Name)
	}
	return c, nil
}

// metadata sets the manifest attributes and the coordinates of s from the files of t below prefix. It skips unreadable
// files.
func (r *input) metadata(s *Source, t *tree, prefix string) error {
	for _, e := range t.entries {
		name, ok := strings.CutPrefix(e.name, prefix)
		isManifest := strings.EqualFold(name, "META-INF/MANIFEST.MF")
		isCoordinates := strings.HasPrefix(name, "META-INF/maven/") && strings.HasSuffix(name, "/pom.properties") &&
			len(s.Coordinates) < maxCoordinates
		if !ok || !isManifest && !isCoordinates {
			continue
		}
		data, err := r.read(e, maxText)
		if errors.Is(err, errBytes) {
			return err
		}
		if err != nil {
			continue // the source is judged without it
		}
		if isManifest {
			s.setManifest(data)
		} else if c := coordinates(data); c.Artifact != "" {
			s.Coordinates = append(s.Coordinates, c)
		}
	}
	return nil
}

// read unpacks e. It returns an error if e has more than limit bytes, even if the archive claims a smaller size.
func (r *input) read(e entry, limit int64) (_ []byte, err error) {
	if e.size > limit {
		return nil, tooLarge(limit)
	}
	f, err := e.open()
	if err != nil {
		return nil, pathError(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if r.bytes -= int64(len(data)); r.bytes < 0 {
		return nil, errBytes
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be unpacked: %w", err)
	case int64(len(data)) > limit:
		return nil, tooLarge(limit)
	}
	return data, nil
}

func tooLarge(limit int64) error { return fmt.Errorf("larger than %d MiB", limit>>20) }
