package classify

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestFeatures runs the scripts of testdata. "source" adds a source with the classes of its input, "outer" describes
// the war around them, and "features" prints the features of all packages and forgets the sources.
func TestFeatures(t *testing.T) {
	d := &Deployment{}
	datadriven.RunTest(t, "testdata/features", func(t *testing.T, c *datadriven.TestData) string {
		switch c.Cmd {
		case "outer":
			s := source(t, c)
			d.Outer = &s
		case "source":
			d.Sources = append(d.Sources, source(t, c))
		case "features":
			c.MaybeScanArgs(t, "main", &d.Main)
			out := describe(d)
			d = &Deployment{}
			return out
		default:
			t.Fatalf("unknown command %s", c.Cmd)
		}
		return ""
	})
}

func source(t *testing.T, c *datadriven.TestData) Source {
	t.Helper()
	s := Source{Kind: Jar}
	var kind, artifact string
	c.ScanArgs(t, "path", &s.Path)
	c.MaybeScanArgs(t, "kind", &kind)
	c.MaybeScanArgs(t, "vendor", &s.Vendor)
	c.MaybeScanArgs(t, "version", &s.Version)
	switch kind {
	case "folder":
		s.Kind = Folder
	case "library":
		s.Kind = Library
	}
	for c.HasArg("artifact") && len(s.Coordinates) == 0 {
		c.ScanArgs(t, "artifact", &artifact)
		for a := range strings.SplitSeq(artifact, "+") {
			f := strings.Split(a, ":")
			s.Coordinates = append(s.Coordinates, Coordinates{f[0], f[1], f[2]})
		}
	}
	for name := range strings.FieldsSeq(c.Input) {
		s.Classes = append(s.Classes, Class{Name: name})
	}
	slices.SortFunc(s.Classes, func(a, b Class) int { return strings.Compare(a.Name, b.Name) })
	return s
}

func describe(d *Deployment) string {
	var b strings.Builder
	features := Features(d)
	for _, p := range Classify(d, Rules{}).Packages {
		fmt.Fprintf(&b, "%s in %s\n ", p.Name, p.Source.base())
		for _, f := range features(p.Source, p.Name) {
			fmt.Fprintf(&b, " %s=%q", f.Name, f.Value)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// The built-in files are valid, and a model survives writing and reading.
func TestModel(t *testing.T) {
	n, m := defaults()
	if len(n["library"]) == 0 || len(m.Weights) == 0 || m.Band <= 0 {
		t.Errorf("%d libraries, %d weights, band %g", len(n["library"]), len(m.Weights), m.Band)
	}
	again, err := ParseModel(m.String())
	if err != nil || again.String() != weightsText {
		t.Errorf("%v: %s", err, again)
	}
	for _, text := range []string{"x\tbias", "NaN\tbias", "1\tcolour\tred"} {
		if m, err := ParseModel(text); err == nil {
			t.Errorf("%q: %v", text, m)
		}
	}
	for _, text := range []string{"library", "colour red"} {
		if _, err := parseNames(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// Owners are distinguished below domains, countries and umbrellas.
func TestOwner(t *testing.T) {
	n, _ := defaults()
	for name, want := range map[string]string{
		"": "", "shop": "shop", "shop.cart": "shop", "com.shop.cart": "com.shop", "com": "com",
		"de.shop.cart": "de.shop", "uk.ac.starlink.table": "uk.ac.starlink",
		"org.apache.roller.ui": "org.apache.roller", "org.apache": "org.apache",
		"gnu.trove.map": "gnu.trove", "io.zipkin.server": "io.zipkin",
		"io.github.shop.a": "io.github.shop",
	} {
		if got := n.ownerOf(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// Rules decide before the model: exclude takes precedence over the other rules, and include decides about all classes.
func TestRules(t *testing.T) {
	d := &Deployment{Main: "com.shop.Main", Sources: []Source{{Path: "/shop.jar", Kind: Jar, Classes: []Class{
		{Name: "com.shop.Dto"}, {Name: "com.shop.Main"}, {Name: "org.lib.A"},
	}}}}
	for _, c := range []struct{ include, own, exclude, want string }{
		{"", "", "", "com.shop.Dto com.shop.Main org.lib.A"},
		{"", "", `.*\.Dto`, "com.shop.Main org.lib.A"},
		{"", `org\.lib\..*`, `.*\.Dto`, "com.shop.Main org.lib.A!"},
		{`com\.shop\..*`, `org\.lib\..*`, `.*\.Dto`, "com.shop.Main!"},
	} {
		var rules Rules
		for _, x := range []struct {
			text string
			to   **regexp.Regexp
		}{{c.include, &rules.Include}, {c.own, &rules.Own}, {c.exclude, &rules.Exclude}} {
			if x.text != "" {
				re, err := Pattern(x.text)
				if err != nil {
					t.Fatal(err)
				}
				*x.to = re
			}
		}
		var got []string
		for _, p := range Classify(d, rules).Packages {
			for _, class := range p.Classes {
				if p.Own && p.Configured {
					got = append(got, class.Name+"!")
				} else if p.Own {
					got = append(got, class.Name)
				}
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
