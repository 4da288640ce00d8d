package shop

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// javaSetup returns the setup of a service in Java whose JVM is a script.
func javaSetup(t *testing.T, script string) *Setup {
	t.Helper()
	dir := t.TempDir()
	java := filepath.Join(dir, "java")
	if err := os.WriteFile(java, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Setup{Service: JavaService, Dir: dir, Java: &Java{JVM: java, Service: "catalog.jar"}}
}

// The database has its own port and password, and exits at the end of its input.
func TestJavaDatabase(t *testing.T) {
	setup := javaSetup(t, `echo "$DATABASE_PASSWORD" >password; printf 4711 >"$PORTFILE"; cat; touch ended`)
	d, err := startJavaDatabase(t.Context(), setup)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.stop(); err != nil {
		t.Error(err)
	}
	password, err := os.ReadFile(filepath.Join(setup.Dir, "password"))
	if err != nil || d.port != "4711" || len(d.password) < 20 || string(password) != d.password+"\n" {
		t.Errorf("port %q, password %q; the process has the password %q, %v", d.port, d.password, password, err)
	}
	if _, err := os.Stat(filepath.Join(setup.Dir, "ended")); err != nil {
		t.Error("the process did not see the end of its input")
	}
}

// The service stops if its database does.
func TestJavaDatabaseFails(t *testing.T) {
	const late = `case "$*" in
*DatabaseServer*) printf 1 >"$PORTFILE"; until test -e service; do :; done; exit 3;;
*) touch service; cat;;
esac`
	for script, want := range map[string]string{
		"exit 3": "the database of the service in Java does not start",
		late:     "the database of the service in Java exited: exit status 3",
	} {
		err := runJava(t.Context(), javaSetup(t, script), make(chan Command), json.NewEncoder(io.Discard))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", script, err, want)
		}
	}
}
