// Package classify distinguishes an application's own classes from its libraries.
//
// Read reads the archives and folders of an application as a Deployment: sources of classes, such as jars and
// WEB-INF/classes. Classify determines the features of each package of each source, relative to the place where the
// application starts (see features.go). It decides by the sum of their log-odds. The agent in the JVM does the same in
// Java (io.github.sibyltrace.agent.classify), with the same model: names.txt is written by hand, and weights.txt is
// trained by "make classify-set".
package classify

import (
	"path"
	"slices"
	"strings"
)

// Kind is the kind of a source.
type Kind uint8

// The kinds of sources.
const (
	Folder  Kind = iota // class files in a folder, BOOT-INF/classes or WEB-INF/classes
	Jar                 // a jar of the class path
	Library             // a jar in BOOT-INF/lib or WEB-INF/lib, or in another archive
)

// Coordinates identify a Maven artifact.
type Coordinates struct{ Group, Artifact, Version string }

// Source is a jar or a folder with classes.
type Source struct {
	Path        string // with symbolic links resolved; "!/" separates an archive from a path within it
	Kind        Kind
	MainClass   string        // from the manifest: where the application starts; may be empty
	Vendor      string        // from the manifest; may be empty
	Version     string        // from the manifest; may be empty
	Coordinates []Coordinates // of all artifacts that the source contains
	Classes     []Class       // ascending by name
}

// Deployment is an application with its libraries.
type Deployment struct {
	Name     string
	Main     string // class where the application starts; empty if unknown or if a container starts it
	Outer    *Source
	Sources  []Source
	Problems []string // entries that were skipped, with reasons for people
	omitted  int      // number of further problems
}

// maxProblems is the maximum number of problems recorded for a deployment.
const maxProblems = 20

func (d *Deployment) problem(text string) {
	if len(d.Problems) < maxProblems {
		d.Problems = append(d.Problems, text)
		return
	}
	d.omitted++
}

// Omitted returns the number of problems that are not in Problems.
func (d *Deployment) Omitted() int { return d.omitted }

// base returns the file name of a source without the extension.
func (s *Source) base() string {
	b := path.Base(s.Path)
	return strings.TrimSuffix(b, path.Ext(b))
}

// folder returns the folder that contains the source, or "" if its path has no slash.
func (s *Source) folder() string {
	i := strings.LastIndexByte(s.Path, '/')
	return s.Path[:max(0, i)]
}

// identity returns the Maven coordinates of the source itself. If the source contains several artifacts, identity
// returns the coordinates of the one with the longest name that is a prefix of the file name. If no artifact matches,
// identity takes the name from the file name, and the version from the file name or else the manifest.
func (s *Source) identity() Coordinates {
	base := s.base()
	var best Coordinates
	for _, c := range s.Coordinates {
		named := base == c.Artifact || strings.HasPrefix(base, c.Artifact+"-")
		if len(s.Coordinates) == 1 || named && len(c.Artifact) > len(best.Artifact) {
			best = c
		}
	}
	if best != (Coordinates{}) {
		return best
	}
	name, version := splitVersion(base)
	return Coordinates{Artifact: name, Version: first(version, s.Version)}
}

// splitVersion splits a file name like shop-core-1.2 at the first dash that is followed by a digit. Without such a
// dash, version is empty.
func splitVersion(base string) (name, version string) {
	for i := 0; i+1 < len(base); i++ {
		if base[i] == '-' && base[i+1] >= '0' && base[i+1] <= '9' {
			return base[:i], base[i+1:]
		}
	}
	return base, ""
}

// packages returns the number of classes in each package.
func (s *Source) packages() map[string]int {
	n := make(map[string]int)
	for _, c := range s.Classes {
		n[c.Package()]++
	}
	return n
}

// contains reports whether the source contains the class with the given name.
func (s *Source) contains(class string) bool {
	_, found := slices.BinarySearchFunc(s.Classes, class, func(c Class, name string) int {
		return strings.Compare(c.Name, name)
	})
	return found
}
