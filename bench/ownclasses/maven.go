package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify"
)

// mavenDeployment reads a war or a jar of Spring Boot, which Maven downloads into a folder.
func mavenDeployment(ctx context.Context, folder string, a application) (*labelled, string, error) {
	folder = filepath.Join(folder, "maven", strings.ReplaceAll(a.name, ":", "_"))
	file, err := download(ctx, folder, a.name)
	if err != nil {
		return nil, "", err
	}
	read, err := classify.Read([]string{file}, "")
	if err != nil {
		return nil, "", err
	}
	if len(read) != 1 {
		return nil, fmt.Sprintf("contains %d deployments", len(read)), nil
	}
	l := &labelled{a, read[0], func(_ *classify.Source, pkg string) bool { return a.ownsPackage(pkg) }}
	return l, l.unfit(), nil
}

func download(ctx context.Context, folder, artifact string) (string, error) {
	if file := only(folder); file != "" {
		return file, nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, "mvn", "--batch-mode", "--quiet", "dependency:copy", "-Dartifact="+artifact, "-DoutputDirectory="+folder)
	c.Dir = folder
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mvn dependency:copy %s: %w: %.500s", artifact, err, out)
	}
	if file := only(folder); file != "" {
		return file, nil
	}
	return "", fmt.Errorf("mvn dependency:copy %s: no file", artifact)
}

// only returns the only file of a folder, empty if there is not exactly one.
func only(folder string) string {
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		return ""
	}
	return filepath.Join(folder, entries[0].Name())
}
