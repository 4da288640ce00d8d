// Package springcatalog contains the catalog of the demo's shop as a Spring Boot service, and builds it with Maven.
package springcatalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// source is the Maven project.
//
//go:embed pom.xml src
var source embed.FS

// Programs lists the files that the service needs.
type Programs struct {
	JVM           string // program java
	Service       string // jar of the service
	OpenTelemetry string // jar of OpenTelemetry's Java agent
}

// The jars that Maven builds and fetches.
const (
	serviceJar       = "catalog.jar"
	openTelemetryJar = "opentelemetry-javaagent.jar"
)

const (
	leastJava    = 17               // version that the service is compiled for
	buildTimeout = 10 * time.Minute // the first build fetches some 150 artifacts
	advice       = "install a JDK of Java 17 or later and Maven, for example with " +
		"apt-get install default-jdk-headless maven"
)

// UnavailableError reports that the machine lacks a program or a library, and how to get it. Its text is one line.
type UnavailableError struct{ reason string }

func (e *UnavailableError) Error() string { return e.reason }

// unavailable returns an error for a missing program.
func unavailable(missing string) error { return &UnavailableError{missing + ": " + advice} }

// Build returns the programs. Unless the cache folder has them, it builds them there and says so on out. home is the
// value of JAVA_HOME, which Maven also reads; if it is "", the JDK is on the PATH. Build returns an [UnavailableError]
// if the machine lacks something.
func Build(ctx context.Context, home, cache string, out io.Writer) (*Programs, error) {
	jvm, err := findJVM(ctx, home)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "catalog-"+sourceHash())
	p := &Programs{
		JVM:           jvm,
		Service:       filepath.Join(dir, serviceJar),
		OpenTelemetry: filepath.Join(dir, openTelemetryJar),
	}
	if _, err := os.Stat(dir); err == nil {
		return p, nil
	}
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return nil, unavailable("Maven is missing")
	}
	fmt.Fprintln(out,
		"Maven builds the Spring Boot service. The first time, it fetches libraries, which takes some minutes.")
	if err := build(ctx, maven, cache, dir); err != nil {
		return nil, fmt.Errorf("build the Spring Boot service: %w", err)
	}
	return p, nil
}

// findJVM returns the path of the JVM in the JDK folder home, or on the PATH if home is "".
func findJVM(ctx context.Context, home string) (string, error) {
	find := exec.LookPath
	if home != "" {
		find = func(name string) (string, error) { return exec.LookPath(filepath.Join(home, "bin", name)) }
	}
	compiler, err := find("javac")
	if err != nil {
		return "", unavailable("a JDK is missing")
	}
	jvm, err := find("java")
	if err != nil {
		return "", unavailable("a JVM is missing")
	}
	text, err := exec.CommandContext(ctx, compiler, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s -version: %w", compiler, err)
	}
	if v := javaVersion(string(text)); v < leastJava {
		return "", unavailable(fmt.Sprintf("the JDK is too old, Java %d", v))
	}
	return jvm, nil
}

var versionNumber = regexp.MustCompile(`javac (?:1\.)?(\d+)`)

// javaVersion returns the version in the output of javac, or 0 if it contains none.
func javaVersion(text string) int {
	m := versionNumber.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	v, err := strconv.Atoi(m[1])
	if err != nil {
		return 0 // too many digits
	}
	return v
}

// sourceHash returns a hash of the Maven project.
func sourceHash() string {
	h := sha256.New()
	err := fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := source.ReadFile(name)
		fmt.Fprintf(h, "%s %d\n%s", name, len(data), data)
		return err
	})
	if err != nil {
		panic(err) // the files are in this program
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// build builds the jars in a temporary folder, which becomes dir once it is complete, because another demo may do the
// same.
func build(ctx context.Context, maven, cache, dir string) (err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cache, "build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	project := filepath.Join(work, "project")
	if err := os.CopyFS(project, source); err != nil {
		return err
	}
	if err := runMaven(ctx, maven, project); err != nil {
		return err
	}
	done := filepath.Join(work, "done")
	if err := os.Mkdir(done, 0o755); err != nil {
		return err
	}
	for _, jar := range []string{serviceJar, openTelemetryJar} {
		if err := os.Rename(filepath.Join(project, "target", jar), filepath.Join(done, jar)); err != nil {
			return err
		}
	}
	if err := os.Rename(done, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// runMaven runs Maven with the settings of the user.
func runMaven(ctx context.Context, maven, project string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, buildTimeout,
		&UnavailableError{"Maven takes too long: try again, it keeps the libraries that it has fetched"})
	defer cancel()
	c := exec.CommandContext(ctx, maven, "--batch-mode", "--no-transfer-progress", "--quiet", "package")
	c.Dir, c.WaitDelay = project, time.Second
	out, err := c.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return mavenError(out, err)
}

// mavenError returns the first error in the output of Maven, with a remedy if it lacks a library.
func mavenError(out []byte, err error) error {
	reason := err.Error()
	for line := range bytes.Lines(out) {
		if text, found := strings.CutPrefix(strings.TrimSpace(string(line)), "[ERROR] "); found {
			reason, _, _ = strings.Cut(text, " -> [Help")
			break
		}
	}
	for _, sign := range []string{
		"Could not transfer", "Could not resolve", "could not be resolved", "Unknown host",
		"offline mode",
	} {
		if strings.Contains(reason, sign) {
			return &UnavailableError{"Maven cannot fetch a library: it needs Maven Central, or a mirror in its " +
				"settings.xml, once: " + reason}
		}
	}
	return fmt.Errorf("mvn: %s", reason)
}
