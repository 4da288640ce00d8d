package classify

import (
	"strings"
)

// Feature is one property of a package in a source, relative to the application.
type Feature struct{ Name, Value string }

// featureNames are the names of the features, in order. A feature without a value is omitted, because it gives no
// evidence.
//
//   - place: where the source lies: in the application's class folder, in the jar with the main class, near it, …
//   - kin: how many segments after the owner's name the package has in common with the main class
//   - home: the share of classes of the same owner in the sources where the application starts
//   - group: the source's Maven group compared with the application's
//   - version: the source's version compared with the application's
//   - name: whether the source's file name contains a word of the application's name
//   - vendor: the source's vendor compared with the application's
//   - library: whether the package belongs to a well-known library (names.txt)
var featureNames = []string{"place", "kin", "home", "group", "version", "name", "vendor", "library"}

// origin describes where an application starts, and its names.
type origin struct {
	names   names
	main    []string           // package of the main class; nil if unknown
	home    map[*Source]bool   // sources where the application starts
	mixed   bool               // sources in home also contain libraries
	owners  map[string]float64 // share of the classes in home, by owner
	folder  string             // folder of the main jar; empty if unknown
	outer   string             // path of the war or Spring Boot jar, if any
	group   string
	version string
	vendor  string
	words   map[string]bool // words in its names
}

// mixedOwners is the minimum number of owners of classes in a main jar that we assume to contain libraries, too.
const mixedOwners = 5

func newOrigin(n names, d *Deployment) *origin {
	o := &origin{names: n, home: make(map[*Source]bool), owners: make(map[string]float64), words: make(map[string]bool)}
	begins := d.Main != "" && !n.covers("launcher", d.Main)
	if begins {
		o.main = segments(Class{Name: d.Main}.Package())
	}
	o.findHome(d, begins)
	total, coordinates := 0, 0
	for s := range o.home {
		for p, count := range s.packages() {
			o.owners[n.ownerOf(p)] += float64(count)
			total += count
		}
		coordinates += len(s.Coordinates)
	}
	for owner := range o.owners {
		o.owners[owner] /= float64(total)
	}
	o.mixed = len(o.owners) >= mixedOwners || coordinates > 1
	o.identify(d)
	return o
}

// findHome determines the sources where the application starts: its folders of classes, or, if there are no such
// folders, the source with the main class. It ignores the main class if begins is false.
func (o *origin) findHome(d *Deployment, begins bool) {
	for i := range d.Sources {
		if d.Sources[i].Kind == Folder {
			o.home[&d.Sources[i]] = true
		}
	}
	for i := range d.Sources {
		if s := &d.Sources[i]; s.Kind == Jar && len(o.home) == 0 && begins && s.contains(d.Main) {
			o.home[s] = true
			o.folder = s.folder()
		}
	}
}

// identify sets the application's group, version, vendor and words, from d.Outer and the sources in home.
func (o *origin) identify(d *Deployment) {
	var all []*Source
	if d.Outer != nil {
		all = append(all, d.Outer)
		o.outer = d.Outer.Path
	}
	for i := range d.Sources {
		if o.home[&d.Sources[i]] {
			all = append(all, &d.Sources[i])
		}
	}
	for _, s := range all {
		id := s.identity()
		o.group = first(o.group, id.Group)
		o.version = first(o.version, id.Version)
		o.vendor = first(o.vendor, s.Vendor)
		if s.Kind != Folder {
			o.addWords(id.Artifact)
		}
	}
	if n := o.names.owner(o.main); n > 0 {
		o.addWords(o.main[n-1])
	}
}

func (o *origin) addWords(name string) {
	for _, w := range o.names.words(name) {
		o.words[w] = true
	}
}

// features returns the known features of pkg in s.
func (o *origin) features(s *Source, pkg string) []Feature {
	all := []Feature{{"place", o.place(s)}, {"kin", o.kin(pkg)}, {"home", o.share(pkg)}}
	if !o.home[s] && s.Path != o.outer { // a launcher in the application's jar also has the application's names
		id := s.identity()
		all = append(all,
			Feature{"group", o.relatedGroup(id.Group)},
			Feature{"version", same(o.version, id.Version)},
			Feature{"name", o.relatedName(id.Artifact)},
			Feature{"vendor", same(o.vendor, s.Vendor)})
	}
	all = append(all, Feature{"library", o.known(pkg)})
	known := all[:0]
	for _, f := range all {
		if f.Value != "" {
			known = append(known, f)
		}
	}
	return known
}

func (o *origin) place(s *Source) string {
	switch {
	case s.Kind == Folder:
		return "class folder"
	case o.home[s] && o.mixed:
		return "" // the jar contains its libraries, too
	case o.home[s]:
		return "main jar"
	case s.Kind == Library:
		return "library folder"
	case o.folder == "":
		return ""
	case s.folder() == o.folder, strings.HasPrefix(s.folder(), o.folder+"/"):
		return "near the main jar"
	}
	return "elsewhere"
}

// kin returns the value of the feature kin, which compares pkg with the package of the main class. It returns "" if the
// main class is unknown.
func (o *origin) kin(pkg string) string {
	if len(o.main) == 0 {
		return ""
	}
	p := segments(pkg)
	shared := 0
	for shared < min(len(p), len(o.main)) && p[shared] == o.main[shared] {
		shared++
	}
	owner := o.names.owner(o.main)
	switch beyond := shared - owner; {
	case beyond >= 2:
		return "owner and two more"
	case beyond == 1:
		return "owner and one more"
	case beyond == 0:
		return "owner"
	case owner >= 3 && shared == owner-1:
		return "umbrella"
	}
	return "other owner"
}

func (o *origin) share(pkg string) string {
	if len(o.owners) == 0 {
		return ""
	}
	switch share := o.owners[o.names.ownerOf(pkg)]; {
	case share >= 0.5:
		return "most"
	case share >= 0.1:
		return "many"
	case share > 0:
		return "few"
	}
	return "none"
}

func (o *origin) relatedGroup(group string) string {
	if group == "" {
		return ""
	}
	owner := o.names.ownerOf(group)
	switch {
	case group == o.group:
		return "same"
	case o.group != "" && owner == o.names.ownerOf(o.group),
		len(o.main) > 0 && owner == strings.Join(o.main[:o.names.owner(o.main)], "."),
		o.owners[owner] >= 0.1:
		return "same owner"
	case o.group == "" && len(o.main) == 0 && len(o.owners) == 0:
		return ""
	}
	return "other"
}

func (o *origin) relatedName(artifact string) string {
	if len(o.words) == 0 {
		return ""
	}
	for _, w := range o.names.words(artifact) {
		if o.words[w] {
			return "shared word"
		}
	}
	return "other"
}

func (o *origin) known(pkg string) string {
	if !o.names.covers("library", pkg) {
		return "no"
	}
	if len(o.main) > 0 && o.names.ownerOf(pkg) == strings.Join(o.main[:o.names.owner(o.main)], ".") {
		return "no" // the application belongs to that project
	}
	return "yes"
}

// same returns "same" if a equals b, "other" if it doesn't, or "" if either is unknown, that is, empty.
func same(a, b string) string {
	switch {
	case a == "" || b == "":
		return ""
	case a == b:
		return "same"
	}
	return "other"
}

// Features returns a function that returns the known features of a package in a source of d.
func Features(d *Deployment) func(s *Source, pkg string) []Feature {
	n, _ := defaults()
	return newOrigin(n, d).features
}
