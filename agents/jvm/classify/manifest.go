package classify

import (
	"bufio"
	"bytes"
	"strings"
)

// manifest parses the main attributes of a manifest. It converts the names of attributes to lower case, because they
// are case-insensitive.
func manifest(data []byte) map[string]string {
	attributes := make(map[string]string)
	last := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			break // the attributes of single entries follow
		}
		if rest, ok := strings.CutPrefix(line, " "); ok {
			if last != "" {
				attributes[last] += rest
			}
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		last = strings.ToLower(name)
		attributes[last] = strings.TrimPrefix(value, " ")
	}
	return attributes
}

// setManifest sets the fields of s that a manifest describes.
func (s *Source) setManifest(data []byte) {
	a := manifest(data)
	s.MainClass = strings.ReplaceAll(first(a["start-class"], a["main-class"]), "/", ".") // JVMs accept both
	s.Vendor = first(a["implementation-vendor-id"], a["implementation-vendor"], a["bundle-vendor"],
		a["specification-vendor"])
	s.Version = first(a["implementation-version"], a["bundle-version"], a["specification-version"])
}

func first(values ...string) string {
	for _, v := range values {
		if v = strings.TrimSpace(v); v != "" {
			return v
		}
	}
	return ""
}

// coordinates parses a pom.properties file, which Maven writes into jars.
func coordinates(data []byte) Coordinates {
	var c Coordinates
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), "=")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "groupId":
			c.Group = value
		case "artifactId":
			c.Artifact = value
		case "version":
			c.Version = value
		}
	}
	return c
}
