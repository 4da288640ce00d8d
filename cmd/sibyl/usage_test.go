package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/internal/cli"
)

// TestWrongUsage: an error contains the flag, its value and the help of the command, and suggests similar names.
func TestWrongUsage(t *testing.T) {
	for _, c := range []struct{ args, want, help string }{
		{"problms", `unknown command "problms" for "sibyl"; did you mean problems?`, "sibyl"},
		{"incidents acept 1", "got 2 arguments, want: sibyl incidents [ID]; did you mean accept?", "sibyl incidents"},
		{"analyze --min-smples 3 x", "unknown flag: --min-smples; did you mean --min-samples?", "sibyl analyze"},
		{"analyze --min-samples -3 x", `--min-samples "-3": want a whole number of at least 0`, "sibyl analyze"},
		{"problems --limit x", `--limit "x": want a whole number`, "sibyl problems"},
		{"replay --to foo f", `--to: "foo" is not an endpoint: want a host and a port`, "sibyl replay"},
		{"replay --speed x f", `--speed "x": want a number`, "sibyl replay"},
		{"replay --past x f", `--past "x": want a duration of at least 0`, "sibyl replay"},
		{"replay --example f", "--example replays the recording that comes with Sibyl", "sibyl replay"},
		{"replay --example --loop", "omit it, or --past and --example", "sibyl replay"},
		{"serve --epch 3s", "unknown flag: --epch; did you mean --epoch?", "sibyl serve"},
		{"serve --zzzzzzzz", "unknown flag: --zzzzzzzz\n", "sibyl serve"},
		{"trace -o xml f", `--output "xml": want one of`, "sibyl trace"},
	} {
		r := sibyl(t, "", strings.Fields(c.args)...)
		if r.code != cli.ExitUsage || !strings.Contains(r.err, c.want) ||
			!strings.HasSuffix(r.err, "See "+c.help+" --help.\n") {
			t.Errorf("sibyl %s: exit code %d, %q; want %q and the help of %s", c.args, r.code, r.err, c.want, c.help)
		}
	}
}

// TestGroupedHelp: serve --help lists its flags in groups, each flag once.
func TestGroupedHelp(t *testing.T) {
	r := sibyl(t, "", "serve", "--help")
	if r.code != cli.ExitOK || strings.Count(r.out, "\n      --epoch ") != 1 ||
		strings.Count(r.out, "\n  -h, --help ") != 1 {
		t.Errorf("exit code %d: %s", r.code, r.out)
	}
	before := -1
	for _, want := range []string{
		"Data, logs, API and web UI:", "--data-dir", "Receiving traces:",
		"      --otlp-grpc ", "Detecting problems; objectives:", "--epoch", "\nFlags:", "--help",
	} {
		at := strings.Index(r.out, want)
		if at < before {
			t.Errorf("%q is not there, or too early", want)
		}
		before = at
	}
}

// TestHelpFits: no line of help is wider than 120 columns, except for examples.
func TestHelpFits(t *testing.T) {
	var fit func(c *cobra.Command)
	fit = func(c *cobra.Command) {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		for line := range strings.Lines(sibyl(t, "", args...).out) {
			if utf8.RuneCountInString(line) > 121 && !strings.Contains(c.Example, strings.TrimSpace(line)) {
				t.Errorf("sibyl %s: %s", strings.Join(args, " "), line)
			}
		}
		for _, sub := range c.Commands() {
			fit(sub)
		}
	}
	fit((&process{getenv: func(string) string { return "" }}).root())
}

// TestWrongAddress: the error for an address that can't be opened contains the reason and the flag for another
// address.
func TestWrongAddress(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dir := t.TempDir()
	// A token permits all addresses.
	if r := sibyl(t, "", "token", "create", "--role", "admin", "--data-dir", dir); r.code != cli.ExitOK {
		t.Fatal(r.err)
	}
	for address, want := range map[string]string{
		":99999": `--http: ":99999": want a host and a port up to 65535, like 127.0.0.1:4317, or off`,
		l.Addr().String(): "address already in use: stop the program that listens there, or choose another " +
			"address with --http",
		"192.0.2.1:80":         "this machine does not have that address: choose another address with --http",
		"nowhere.invalid:8321": "choose another address with --http",
	} {
		r := sibyl(t, "", "serve", "--data-dir", dir, "--http", address, "--otlp-grpc", "127.0.0.1:0",
			"--otlp-http", "off")
		if r.code == cli.ExitOK || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit code %d: %s", address, r.code, r.err)
		}
	}
}

// TestDataDir: serve and token create refuse a directory of another program, and doctor reports it.
func TestDataDir(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const ports = "--http=127.0.0.1:0 --otlp-grpc=127.0.0.1:0 --otlp-http=off"
	for _, command := range []string{"serve " + ports, "token create --role viewer", "doctor " + ports} {
		for path, want := range map[string]string{
			dir:                           "other files (main.go)",
			filepath.Join(dir, "main.go"): "is a file, or below one",
		} {
			r := sibyl(t, "", append(strings.Fields(command), "--data-dir", path)...)
			all := strings.Join(strings.Fields(r.out+r.err), " ") // doctor wraps lines
			if r.code != cli.ExitError || !strings.Contains(all, want) ||
				!strings.Contains(strings.ToLower(all), "choose a directory with --data-dir") {
				t.Errorf("%s, %s: exit code %d: %s", command, want, r.code, all)
			}
		}
	}
}

// TestReplayToNobody: replay fails at once if nothing listens at the endpoint.
func TestReplayToNobody(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{address, "http://" + address} {
		r := sibyl(t, "", "replay", "--example", "--to", to)
		if r.code != cli.ExitError || !strings.Contains(r.err, "nothing listens at "+address) {
			t.Errorf("%s: exit code %d: %s", to, r.code, r.err)
		}
	}
}

// TestCompletion: commands complete the IDs of tokens. They complete nothing if no service answers.
func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	r := sibyl(t, "", "token", "create", "--role", "viewer", "--name", "board", "--data-dir", dir)
	if r.code != cli.ExitOK || !strings.Contains(r.err, "this is the first token") {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	r = sibyl(t, "", "__complete", "token", "revoke", "--data-dir", dir, "")
	if !strings.Contains(r.out, "\tviewer board\n") {
		t.Errorf("tokens: %q, %s", r.out, r.err)
	}
	r = sibyl(t, "", "token", "create", "--role", "admin", "--if-none", "--data-dir", dir)
	if r.code != cli.ExitOK || r.out != "" || !strings.Contains(r.err, "no token was created") {
		t.Errorf("token create --if-none: exit code %d: %q %s", r.code, r.out, r.err)
	}
	for _, command := range []string{"explain", "incidents"} {
		r := sibyl(t, "", "__complete", command, "--server", "http://127.0.0.1:9", "")
		if r.code != cli.ExitOK || strings.HasPrefix(r.out, "http") {
			t.Errorf("%s: exit code %d: %q", command, r.code, r.out)
		}
	}
}

// TestServerVariable: commands query the service in SIBYL_SERVER, unless --server is given.
func TestServerVariable(t *testing.T) {
	getenv := func(key string) string { return map[string]string{serverVariable: "http://127.0.0.1:1"}[key] }
	for _, c := range []struct{ want, args string }{
		{"127.0.0.1:1", "incidents"},
		{"127.0.0.1:1", "doctor -o json"},
		{"127.0.0.1:2", "incidents --server http://127.0.0.1:2"},
	} {
		var out, err strings.Builder
		code := run(t.Context(), strings.Fields(c.args), getenv, nil, &out, &err)
		if code != cli.ExitError || !strings.Contains(out.String()+err.String(), c.want) {
			t.Errorf("%s: exit code %d, %s%s; want %q", c.args, code, out.String(), err.String(), c.want)
		}
	}
}
