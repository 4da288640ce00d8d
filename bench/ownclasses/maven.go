package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify"
)

// maven holds wars and jars of Spring Boot, which Maven downloads into a folder.
type maven struct{ folder string }

// directory returns the name of the folder of an artifact.
func directory(artifact string) string { return strings.ReplaceAll(artifact, ":", "_") }

// download downloads the artifacts that are not there yet, in one run of Maven. Each has its own module, so an artifact
// that is not available does not affect the others. If one is not available, download returns the messages of Maven.
func (m maven) download(ctx context.Context, applications []application) (string, error) {
	var modules strings.Builder
	missing := false
	for _, a := range applications {
		if a.kind != "maven" || m.file(a.name) != "" {
			continue
		}
		missing = true
		name := directory(a.name)
		if err := m.writeModule(name, a.name); err != nil {
			return "", err
		}
		fmt.Fprintf(&modules, "<module>%s</module>", name)
	}
	if !missing {
		return "", nil
	}
	if err := os.WriteFile(filepath.Join(m.folder, "pom.xml"),
		[]byte(projectOf("all", "<modules>"+modules.String()+"</modules>")), 0o600); err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, "mvn", "--batch-mode", "--quiet", "--fail-at-end", "validate")
	c.Dir = m.folder
	out, err := c.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		return string(out), nil
	}
	return "", err
}

// file returns the downloaded artifact, or "" if there is no such file.
func (m maven) file(artifact string) string {
	files, err := filepath.Glob(filepath.Join(m.folder, directory(artifact), "artifact", "*.?ar"))
	if err != nil || len(files) != 1 {
		return ""
	}
	return files[0]
}

func projectOf(name, content string) string {
	return `<project><modelVersion>4.0.0</modelVersion><groupId>set</groupId><artifactId>` + name + `</artifactId>` +
		`<version>1</version><packaging>pom</packaging>` + content + `</project>`
}

// writeModule writes a project that copies an artifact into the folder artifact.
func (m maven) writeModule(name, artifact string) error {
	folder := filepath.Join(m.folder, name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f := strings.Split(artifact, ":")
	var item strings.Builder
	for i, tag := range []string{"groupId", "artifactId", "version", "type", "classifier"} {
		if i < len(f) {
			item.WriteString("<" + tag + ">")
			if err := xml.EscapeText(&item, []byte(f[i])); err != nil {
				return err
			}
			item.WriteString("</" + tag + ">")
		}
	}
	plugin := `<build><plugins><plugin><artifactId>maven-dependency-plugin</artifactId><version>3.8.1</version>` +
		`<executions><execution><phase>validate</phase><goals><goal>copy</goal></goals>` +
		`<configuration><outputDirectory>${project.basedir}/artifact</outputDirectory><artifactItems><artifactItem>` +
		item.String() +
		`</artifactItem></artifactItems></configuration></execution></executions></plugin></plugins></build>`
	return os.WriteFile(filepath.Join(folder, "pom.xml"), []byte(projectOf(name, plugin)), 0o600)
}

// deployment reads an application. If it does not fit into the set, it also returns the reason.
func (m maven) deployment(a application) (*labelled, string, error) {
	file := m.file(a.name)
	if file == "" {
		return nil, "Maven did not find it", nil
	}
	read, err := classify.Read([]string{file}, "")
	if err != nil {
		return nil, "", err
	}
	if len(read) != 1 {
		return nil, fmt.Sprintf("it contains %d deployments", len(read)), nil
	}
	l := &labelled{a, read[0], func(_ *classify.Source, pkg string) bool { return a.ownsPackage(pkg) }}
	return l, l.unfit(), nil
}
