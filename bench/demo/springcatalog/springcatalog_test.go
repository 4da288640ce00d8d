package springcatalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script writes a program into a new folder, which becomes the PATH.
func script(t *testing.T, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, body := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("JAVA_HOME", "")
}

// The error is a line with the reason and a remedy if the JDK, Maven or a library is missing.
func TestBuildFails(t *testing.T) {
	const java, noVersion = "echo javac 17.0.15", "echo javac"
	for want, programs := range map[string]map[string]string{
		"a JDK is missing: install": {"mvn": "exit 0"},
		"a JVM is missing: install": {"javac": java},
		"too old, Java 11: install": {"javac": "echo javac 11.0.2", "java": ""},
		"too old, Java 8: install":  {"javac": "echo javac 1.8.0_392 >&2", "java": ""},
		"too old, Java 0: install":  {"javac": noVersion, "java": ""},
		"Maven is missing: install": {"javac": java, "java": ""},
		"mvn: exit status 7":        {"javac": java, "java": "", "mvn": "exit 7"},
		"mvn: no such goal": {
			"javac": java, "java": "",
			"mvn": "echo noise; echo '[ERROR] no such goal -> [Help 1]'; echo '[ERROR] more'; exit 1",
		},
		"it needs Maven Central, or a mirror in it": {
			"javac": java, "java": "", "mvn": "echo '[ERROR] Could not transfer artifact a:b:pom:1'; exit 1",
		},
	} {
		script(t, programs)
		cache := t.TempDir()
		_, err := Build(t.Context(), "", cache, t.Output())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got error %v, want %s", err, want)
		}
		if left, err := os.ReadDir(cache); err != nil || len(left) > 0 {
			t.Errorf("%s: left in the cache: %v, %v", want, left, err)
		}
	}
}

// The jars are built only once for the same source.
func TestBuildOnce(t *testing.T) {
	tools := os.Getenv("PATH")
	script(t, map[string]string{
		"javac": "echo javac 21", "java": "",
		"mvn": "test -f pom.xml && test -d src && mkdir target && echo 1 >target/" + serviceJar +
			" && echo 2 >target/" + openTelemetryJar,
	})
	t.Setenv("PATH", os.Getenv("PATH")+":"+tools)
	cache := t.TempDir()
	first, err := Build(t.Context(), "", cache, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{first.Service: "1\n", first.OpenTelemetry: "2\n"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	script(t, map[string]string{"javac": "echo javac 21", "java": ""})
	second, err := Build(t.Context(), "", cache, t.Output())
	if err != nil || second.Service != first.Service {
		t.Errorf("%v, %v; want the programs of the first build without Maven", second, err)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "build-*")); err != nil || len(left) > 0 {
		t.Errorf("left in the cache: %v, %v", left, err)
	}
}
