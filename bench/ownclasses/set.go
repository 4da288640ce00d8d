package main

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify"
)

//go:embed applications.txt
var applications string

// application is one of the labelled set.
type application struct {
	kind string         // debian or maven
	name string         // of the package, or coordinates
	own  *regexp.Regexp // packages of the application; nil if Debian's source package decides
	not  *regexp.Regexp // packages matched by own that are not; may be nil
}

func parseApplications(text string) ([]application, error) {
	var all []application
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || strings.HasPrefix(f[0], "#"):
		case len(f) == 2 && f[0] == "debian":
			all = append(all, application{kind: f[0], name: f[1]})
		case (len(f) == 3 || len(f) == 4) && f[0] == "maven":
			a := application{kind: f[0], name: f[1]}
			var errs [2]error
			a.own, errs[0] = classify.Pattern(f[2])
			if len(f) == 4 {
				a.not, errs[1] = classify.Pattern(f[3])
			}
			if err := errors.Join(errs[:]...); err != nil {
				return nil, fmt.Errorf("%s: %w", f[1], err)
			}
			all = append(all, a)
		default:
			return nil, fmt.Errorf("%q is neither an application of Debian nor of Maven", strings.TrimSpace(line))
		}
	}
	return all, nil
}

// labelled is a deployment whose own classes are known.
type labelled struct {
	application
	*classify.Deployment
	owns func(s *classify.Source, pkg string) bool
}

// ownsPackage reports whether a package is the application's own by its name.
func (a application) ownsPackage(name string) bool {
	return a.own.MatchString(name) && (a.not == nil || !a.not.MatchString(name))
}
