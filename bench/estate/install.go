package estate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// installTimeout bounds the installation of a package. Go programs are built from source.
const installTimeout = 30 * time.Minute

// installer installs packages below a cache folder. The subfolder of a package contains markerName once it is complete.
type installer struct {
	cache string
	env   []string
	out   io.Writer // progress
}

// markerName is the file with the pinned versions of an installed package.
const markerName = "installed.json"

// dir returns the folder of a package.
func (i *installer) dir(p *packageInfo) string { return filepath.Join(i.cache, p.name) }

// install installs a package unless the same versions are present.
func (i *installer) install(ctx context.Context, p *packageInfo) error {
	if p.registry == system && len(p.programs) > 0 && i.systemPrograms(p) == nil {
		return nil
	}
	marker, err := json.Marshal(p.install)
	if err != nil {
		return err
	}
	dir := i.dir(p)
	if have, err := os.ReadFile(filepath.Join(dir, markerName)); err == nil && bytes.Equal(have, marker) {
		return nil
	}
	fmt.Fprintf(i.out, "installing %s\n", strings.Join(p.install, " "))
	ctx, cancel := context.WithTimeoutCause(ctx, installTimeout, errors.New("the installation takes too long"))
	defer cancel()
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return fmt.Errorf("install %s: %w", p.name, err)
	}
	if err := i.fetch(ctx, p, dir); err != nil {
		return fmt.Errorf("install %s: %w", p.name, err)
	}
	return os.WriteFile(filepath.Join(dir, markerName), marker, 0o644)
}

// fetch installs p into dir with the client of its registry.
func (i *installer) fetch(ctx context.Context, p *packageInfo, dir string) error {
	switch p.registry {
	case goModule:
		for _, module := range p.install {
			err := i.run(ctx, dir, []string{"GOBIN=" + dir, "GOWORK=off", "GOFLAGS="}, "go", "install", module)
			if err != nil {
				return err
			}
		}
		return nil
	case pip:
		if err := i.run(ctx, dir, nil, "python3", "-m", "venv", "venv"); err != nil {
			return err
		}
		return i.run(ctx, dir, nil, filepath.Join(dir, "venv", "bin", "pip"),
			append([]string{"install", "--quiet", "--no-input"}, p.install...)...)
	case npm:
		if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private":true}`), 0o644); err != nil {
			return err
		}
		return i.run(ctx, dir, nil, "npm",
			append([]string{"install", "--save-exact", "--no-audit", "--no-fund", "--ignore-scripts"}, p.install...)...)
	case maven:
		if err := os.WriteFile(filepath.Join(dir, "pom.xml"), project(p.install), 0o644); err != nil {
			return err
		}
		return i.run(ctx, dir, nil, "mvn", "-q", "-B", "-C", "-Dmaven.repo.local="+filepath.Join(i.cache, "m2"),
			"dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(dir, "lib"), "-Dmdep.stripVersion")
	case system:
		if err := i.run(ctx, dir, nil, "apt-get", append([]string{"download"}, p.install...)...); err != nil {
			return err
		}
		archives, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err != nil {
			return err
		}
		for _, a := range archives {
			if err := i.run(ctx, dir, nil, "dpkg", "-x", a, filepath.Join(dir, "root")); err != nil {
				return err
			}
		}
		return i.systemPrograms(p)
	}
	panic("estate: unknown registry " + string(p.registry))
}

// project returns a Maven project that depends on artifacts.
func project(artifacts []string) []byte {
	var out bytes.Buffer
	out.WriteString("<project><modelVersion>4.0.0</modelVersion><groupId>estate</groupId>" +
		"<artifactId>estate</artifactId><version>1</version><packaging>pom</packaging><dependencies>")
	for _, a := range artifacts {
		part := strings.SplitN(a, ":", 3)
		fmt.Fprintf(&out,
			"<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>",
			part[0], part[1], part[2])
	}
	out.WriteString("</dependencies></project>")
	return out.Bytes()
}

// run runs a command in dir. The error contains the end of its output.
func (i *installer) run(ctx context.Context, dir string, env []string, program string, args ...string) error {
	c := exec.CommandContext(ctx, program, args...)
	c.Dir, c.Env = dir, slices.Concat(i.env, env)
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s: %w: %s", program, err, tail(out))
}

// systemPrograms returns an error unless all system programs of a package are found.
func (i *installer) systemPrograms(p *packageInfo) error {
	for _, name := range p.programs {
		if i.systemProgram(p, name) == "" {
			return fmt.Errorf("no program %s on the PATH or below the cache", name)
		}
	}
	return nil
}

// systemProgram returns the path of a system program, or "" if it is not found. Debian keeps PostgreSQL's programs off
// the PATH.
func (i *installer) systemProgram(p *packageInfo, name string) string {
	for _, root := range []string{"/", filepath.Join(i.dir(p), "root")} {
		for _, pattern := range []string{"usr/lib/postgresql/*/bin/", "usr/bin/", "usr/local/bin/"} {
			found, _ := filepath.Glob(filepath.Join(root, pattern, name)) // the pattern is well-formed
			if len(found) > 0 {
				return found[len(found)-1]
			}
		}
	}
	path, _ := exec.LookPath(name) // "" is the answer
	return path
}

// libraries returns the folders with shared libraries of downloaded system packages.
func (i *installer) libraries(p *packageInfo) string {
	pattern := filepath.Join(i.dir(p), "root", "usr", "lib", "*-linux-gnu")
	found, _ := filepath.Glob(pattern) // the pattern is well-formed
	return strings.Join(found, ":")
}

// tail returns the last lines of an output.
func tail(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "; ")
}
