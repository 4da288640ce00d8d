package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigCheck(t *testing.T) {
	for _, c := range []struct {
		file string
		code int
		err  []string // parts of the lines
	}{
		{"epoch: 20s\n", 0, nil},
		{"http: 0.0.0.0:80\n", 0, []string{"sibyl.yaml:1: http: reachable from other machines"}},
		{"epoch: 20\nepoc: 20s\n", 1, []string{
			"sibyl.yaml:1: epoch: ", `sibyl.yaml:2: unknown key "epoc"`, "sibyl: 2 errors in the configuration",
		}},
	} {
		name := filepath.Join(t.TempDir(), "sibyl.yaml")
		if err := os.WriteFile(name, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		r := sibyl(t, "", "config", "check", name)
		lines := strings.FieldsFunc(r.err, func(r rune) bool { return r == '\n' })
		if r.code != c.code || r.out != "" || len(lines) != len(c.err) {
			t.Errorf("%q: exit code %d, %q", c.file, r.code, r.err)
			continue
		}
		for i, part := range c.err {
			if !strings.Contains(lines[i], part) {
				t.Errorf("%q: line %d is %q, want %q in it", c.file, i+1, lines[i], part)
			}
		}
	}
}

func TestConfigUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		err  string // part of the error message
	}{
		{"config", 0, ""},
		{"config check", 2, "FILE is missing"},
		{"config check a b", 2, "FILE is missing"},
		{"config check a --config b", 2, "FILE is missing"},
		{"config check --config nowhere.yaml", 1, "nowhere.yaml: cannot be read"},
		{"config check nowhere.yaml", 1, "nowhere.yaml: cannot be read"},
		{"config print sibyl.yaml", 2, "sibyl config print --config FILE"},
		{"serve sibyl.yaml", 2, "sibyl serve --config FILE"},
		{"config print --epoch=never --otlp-tls-key=k", 2, "--epoch: \"never\": want a duration"},
		{"config print --config=nowhere.yaml", 1, "nowhere.yaml: cannot be read"},
		{"config print --epoch=20s --otlp-require-token -o json", 0, ""},
	} {
		r := sibyl(t, "", strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.err, c.err) || (c.err == "" && r.err != "") {
			t.Errorf("sibyl %s: exit code %d, %q; want %d, %q", c.args, r.code, r.err, c.code, c.err)
		}
	}
}

func TestConfigPrint(t *testing.T) {
	var out, errOut bytes.Buffer
	env := map[string]string{"SIBYL_LEARNING": "1m"}
	getenv := func(name string) string { return env[name] }
	if code := run(t.Context(), []string{"config", "print", "--epoch", "20s"}, getenv, nil, &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	for _, line := range []string{
		"\nepoch: 20s # --epoch; default: 10s\n",
		"\nlearning: 1m # SIBYL_LEARNING; default: 5m\n",
		"\n  grpc: 127.0.0.1:4317\n",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, out.String())
		}
	}
	var keys []map[string]any
	printed := sibyl(t, "", "config", "print", "-o", "json").out
	if err := json.Unmarshal([]byte(printed), &keys); err != nil || len(keys) == 0 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
}
