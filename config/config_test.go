package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// sources returns sources with a file dir/sibyl.yaml with the given text, variables like SIBYL_EPOCH=1s, and flags.
func sources(t testing.TB, dir, text string, env, args []string) Sources {
	t.Helper()
	name := filepath.Join(dir, "sibyl.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags := AddFlags(set, "group")
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Sources{File: name, Flags: flags, Getenv: func(name string) string {
		for _, v := range env {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}}
}

// TestScripts loads files, variables and flags. Input lines that start with $ are variables, and lines that start with
// -- are flags. The other lines are the file, with their line numbers.
//
//	load       prints the keys that a source gives, each with its origin, or the errors
//	print      prints the whole configuration
//	tokens     prints an error for each listener that needs a token to exist
//	unguarded  prints the listeners that need no token and no certificate
//	reload     takes two files, separated by ===, and prints the configuration applied and the keys refused
func TestScripts(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "scripts"), func(t *testing.T, path string) {
		dir := t.TempDir()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := script(t, dir, d)
			return strings.ReplaceAll(out, dir+string(filepath.Separator), "")
		})
	})
}

func script(t *testing.T, dir string, d *datadriven.TestData) string {
	t.Helper()
	if d.Cmd == "reload" {
		before, after, _ := strings.Cut(d.Input, "===\n")
		applied, refused := Reload(mustLoad(t, dir, before), mustLoad(t, dir, after))
		return nonDefaults(applied) + fmt.Sprintf("refused: %s\n", strings.Join(refused, " "))
	}
	var env, args []string
	lines := strings.Split(d.Input, "\n")
	for i, line := range lines {
		if v, ok := strings.CutPrefix(line, "$"); ok {
			env, lines[i] = append(env, v), ""
		} else if strings.HasPrefix(line, "--") && !strings.HasPrefix(line, "---") {
			args, lines[i] = append(args, line), ""
		}
	}
	e, err := Load(sources(t, dir, strings.Join(lines, "\n"), env, args))
	if err != nil {
		return err.Error() + "\n"
	}
	switch d.Cmd {
	case "load":
		return nonDefaults(e)
	case "print":
		var b bytes.Buffer
		if err := e.Print(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	case "tokens":
		if err := e.RequireTokens(); err != nil {
			return err.Error() + "\n"
		}
		return ""
	case "unguarded":
		var b strings.Builder
		for _, l := range e.Config.Unguarded() {
			fmt.Fprintln(&b, l.Key, l.Address)
		}
		return b.String()
	}
	d.Fatalf(t, "no command %s", d.Cmd)
	return ""
}

func mustLoad(t *testing.T, dir, text string) *Effective {
	t.Helper()
	e, err := Load(sources(t, dir, text, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// nonDefaults lists the keys set by a source.
func nonDefaults(e *Effective) string {
	var b strings.Builder
	for _, d := range definitions() {
		if key := d.about().key; e.Origin(key) != "" {
			fmt.Fprintf(&b, "%s = %v (%s)\n", key, d.value(&e.Config).Interface(), e.Origin(key))
		}
	}
	return b.String()
}

// The configuration's defaults equal the packages' defaults and the documented ones.
func TestDefaults(t *testing.T) {
	e, err := Load(Sources{})
	if err != nil {
		t.Fatal(err)
	}
	c := &e.Config
	want := []Listener{{"http", "127.0.0.1:8321"}, {"otlp.grpc", "127.0.0.1:4317"}, {"otlp.http", "127.0.0.1:4318"}}
	if got := c.Listeners(); !slices.Equal(got, want) {
		t.Errorf("listens on %v, want %v", got, want)
	}
	if err := e.RequireTokens(); err != nil {
		t.Errorf("requires tokens: %v", err)
	}
	watch := detect.DefaultWatchOptions()
	watch.Chronic = detect.DefaultThresholds()
	if diff := cmp.Diff(watch, c.WatchOptions()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(detect.DefaultThresholds(), c.ChronicThresholds()); diff != "" {
		t.Error(diff)
	}
	online := assemble.NewOnlineOptions(10*time.Second, 2032*mib/256*45)
	if got := c.OpenTraces(); got != online {
		t.Errorf("assembly: got %+v, want %+v", got, online)
	}
	core := engine.DefaultOptions()
	core.Watch = watch
	core.Strategy, core.Budget, core.Retention = search.DefaultStrategy, c.Budget.Search(), c.Retention.Age
	core.Groups.Groups, core.Sites, core.EarlyBytes = 28_899, 19_975, 2032*mib/256*14
	core.Contexts, core.Tracepoints, core.Operations = 346_794, 260_096, 8128
	core.Rules.GroupBy, core.Rules.Types = []string{}, []group.TypeRule{}
	if diff := cmp.Diff(core, c.Engine()); diff != "" {
		t.Error(diff)
	}
	if c.DataDir != "./sibyl-data" || c.Epoch != 10*time.Second || c.Learning != 5*time.Minute || c.Memory != 2<<30 {
		t.Errorf("%+v", c)
	}
	for _, key := range explain.ContrastKeys() {
		if !slices.Contains(c.AttributeKeys(), key) {
			t.Errorf("the default keys lack %s", key)
		}
	}
	if _, err := ingest.NewKeys(c.AttributeKeys()...); err != nil || len(c.AttributeKeys()) == 0 {
		t.Errorf("%v: %v", c.AttributeKeys(), err)
	}
}

func TestConversions(t *testing.T) {
	e := mustLoad(t, t.TempDir(), `
budget:
  {tracepoints: 1, bytes-per-second: 2B, cpu: 3, per-service: {tracepoints: 7, bytes-per-second: 8, cpu: 9}}
thresholds: {cov: 0.3, false-discovery: 0.01, min-impact: 1ms}
min-samples: 70
keys: [b, c]
group-by: [a, b]
rules:
  - {attribute: d, name: x, group-by: [e], objective: 1s, accept: {cov: 0.5, mean: 2s, delayed: 0.2}, size: g, timeout: 4s, merge: true, value: v, entry: s o}
`)
	c := &e.Config
	budget := search.Budget{
		Tracepoints: 1, Bytes: 2, CPU: 3, Service: search.Limit{Tracepoints: 7, Bytes: 8, CPU: 9},
	}
	if diff := cmp.Diff(budget, c.Budget.Search()); diff != "" {
		t.Error(diff)
	}
	watch := detect.DefaultWatchOptions()
	watch.FalseDiscovery, watch.MinImpact, watch.MinSamples = 0.01, 1e6, 70
	watch.Chronic = detect.DefaultThresholds()
	watch.Chronic.CoV, watch.Chronic.MinSamples = 0.3, 70
	if diff := cmp.Diff(watch, c.WatchOptions()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(watch.Chronic, c.ChronicThresholds()); diff != "" {
		t.Error(diff)
	}
	rules := group.Rules{GroupBy: []string{"a", "b"}, Types: []group.TypeRule{{
		Entry:     "s o",
		Attribute: "d",
		Value:     "v",
		Name:      "x",
		Merge:     true,
		GroupBy:   []string{"e"},
		Objective: time.Second,
		Size:      "g",
		Timeout:   4 * time.Second,
		Accepted:  group.AcceptedLevel{CoV: 0.5, Delayed: 0.2, Mean: 2 * time.Second},
	}}}
	if diff := cmp.Diff(rules, c.AnalysisRules()); diff != "" {
		t.Error(diff)
	}
	if got := c.AttributeKeys(); !slices.Equal(got, []string{"a", "b", "c", "d", "e", "g"}) {
		t.Errorf("AttributeKeys = %v", got)
	}
}

// samples returns two values of a key as text. They differ from each other and from the default.
func samples(t testing.TB, d *description) (a, b string) {
	t.Helper()
	lists := map[string][2]string{
		"jaeger.query": {
			"[{url: http://a}]",
			"[{url: http://b, protocol: grpc, services: [x, y], interval: 1m, lookback: 0s}]",
		},
		"rules": {
			"[{entry: s a}]",
			"[{entry: s b, name: n, merge: true, objective: 250ms, accept: {cov: 0.5, mean: 1s}}, {entry: s b}]",
		},
		"trace-url": {"[{name: a, url: 'http://a/{trace_id}'}]", "[{name: b, url: 'https://b/#{trace_id}'}]"},
		"suspect-url": {
			"[{name: a, url: 'http://a/{service}'}]",
			"[{name: a, url: 'https://b/{service}', services: ['x*', y]}]",
		},
		"metrics.queries": {"[{name: a, query: up}]", "[{name: b, query: 'up{job=\"{service}\"}', unit: bytes}]"},
		"owners":          {"[{services: [x], name: a}]", "[{services: ['x*', y], name: b, contact: c, route: [d]}]"},
		"email": {
			"[{name: a, server: 'a:25', from: a@b, to: [c@d]}]",
			"[{name: b, server: '[::1]:465', allow-private: true, security: tls, from: 'A <a@b>', to: [c@d, e@f], " +
				"username: u, password-file: x, events: []}]",
		},
		"api.public-url": {"http://10.0.0.1:8321", "https://sibyl.example/ui"},
		"webhooks": {
			"[{name: a, url: http://a}]",
			"[{name: b, url: http://b, format: slack, events: [decision], allow-private: true, secret-file: x}]",
		},
		"retention.age":   {"2d", "3d"},
		"retention.audit": {"2d", "3d"},
		"failures":        {"status,http", "[]"},
		"objectives": {
			"[{entry: s, errors: 0.1%}]",
			"[{entry: s b, latency: {percentile: 99.9, below: 300ms}, errors: 0.002, name: n}, " +
				"{entry: s, latency.percentile: 50, latency.below: 1s}]",
		},
	}
	headers := [2]string{"[{name: X-A, value-file: a}]", "[{name: X-A, value-file: b}, {name: X-B, value-file: b}]"}
	lists["tenants"] = [2]string{
		"[{name: a, export.otlp: \"http://b:1/c\"}]",
		"[{name: a, webhooks: [{name: w, url: \"https://b\"}], export.otlp: \"http://b:1/c\"}, {name: b}]",
	}
	lists["export.headers"], lists["self-tracing.headers"] = headers, headers
	lists["logs.headers"], lists["metrics.headers"] = headers, headers
	if pair, ok := lists[d.key]; ok {
		return pair[0], pair[1]
	}
	byType := map[string][2]string{
		"duration": {"50m", "51m"}, "size": {"65MiB", "66MiB"}, "integer": {"7", "8"}, "number": {"0.5", "0.25"},
		"share": {"7%", "0.333333333333333"}, "rate": {"7ms/s", "8ms/s"}, "bool": {"true", "false"},
		"path": {"/a", "/b"}, "address": {"127.0.0.1:0", "localhost:0"},
		"url": {"http://localhost", "https://b:1/c"}, "list": {"a,b", "[c]"},
		"name": {"binary", "covariance"}, "text": {"a", "b"}, "text|json": {"json", "text"},
		"disk|process": {"process", "disk"}, "debug|info|warn|error": {"debug", "warn"},
		"none|organization|common-name": {"organization", "common-name"},
		"none|tls":                      {"tls", "none"},
	}
	pair, ok := byType[d.typeName]
	if !ok {
		t.Fatalf("no samples of %s, a %s", d.key, d.typeName)
	}
	return pair[0], pair[1]
}

// For each key and each combination of sources, the source with the highest precedence applies.
func TestPrecedence(t *testing.T) {
	all := definitions()
	dir := t.TempDir()
	for _, definition := range all {
		d := definition.about()
		a, b := samples(t, d)
		value := func(text string) any {
			l := newLayer()
			if errs := l.readWord(definition, text, &reader{}); len(errs) > 0 {
				t.Fatalf("%s: %v", d.key, errs)
			}
			return definition.value(&l.config).Interface()
		}
		initial := definition.value(&merge().Config).Interface()
		if reflect.DeepEqual(value(a), value(b)) || reflect.DeepEqual(value(a), initial) {
			t.Errorf("%s: %s, %s and the default are not three values", d.key, a, b)
		}
		for given := range 8 { // bits: file, environment, flag
			var file string
			var env, args []string
			want, origin := initial, ""
			pick := func(n int) string { return []string{a, b}[n] }
			if given&1 != 0 {
				file, want, origin = d.key+": "+pick(0), value(a), "sibyl.yaml:1"
			}
			if given&2 != 0 {
				env, want, origin = []string{variable(d.key) + "=" + pick(1)}, value(b), variable(d.key)
			}
			if given&4 != 0 {
				args, want, origin = []string{"--" + dashed(d.key) + "=" + pick(0)}, value(a), "--"+dashed(d.key)
			}
			s := sources(t, dir, file, env, args)
			layers, known := readAll(s)
			if len(known) > 0 {
				t.Errorf("%s: %v", d.key, known)
				continue
			}
			e := merge(layers...) // not Load, because a certificate without a key is an error
			got := strings.TrimPrefix(e.Origin(d.key), dir+"/")
			if !reflect.DeepEqual(definition.value(&e.Config).Interface(), want) || got != origin {
				t.Errorf("%s: %v from %q; want %v from %q", d.key, definition.value(&e.Config), got, want, origin)
			}
		}
	}
}

// Each key changes a separate field of Config.
func TestEveryKeyReachesItsField(t *testing.T) {
	all := definitions()
	plain := merge(newLayer())
	seen := make(map[string]string)
	for i := range all {
		key := all[i].about().key
		text, _ := samples(t, all[i].about())
		l := newLayer()
		l.readWord(all[i], text, &reader{source: "x"})
		c := merge(l).Config
		diff := cmp.Diff(plain.Config, c)
		if diff == "" {
			t.Errorf("%s = %s changes nothing", key, text)
		}
		if other := seen[diff]; other != "" {
			t.Errorf("%s and %s change the same field", key, other)
		}
		seen[diff] = key
	}
}

func TestDefinitions(t *testing.T) {
	flags := make(map[string]string)
	all := definitions()
	for i := range all {
		d := all[i].about()
		if other, ok := flags[dashed(d.key)]; ok {
			t.Errorf("%s and %s have the same flag", d.key, other)
		}
		flags[dashed(d.key)] = d.key
		if !strings.HasSuffix(d.help, ".") {
			t.Errorf("%s: help is not a sentence: %q", d.key, d.help)
		}
		if strings.ContainsAny(d.help+d.want, "`|") {
			t.Errorf("%s: help contains ` or |, which have a meaning in flags and tables", d.key)
		}
		for _, x := range all[:i] {
			other := x.about()
			if strings.HasPrefix(other.key, d.key+".") || strings.HasPrefix(d.key, other.key+".") {
				t.Errorf("%s and %s cannot both stand in a file", d.key, other.key)
			}
		}
		if v := variable(d.key); strings.HasPrefix(v, "SIBYL_PORT") || strings.HasPrefix(v, "SIBYL_SERVICE") {
			t.Errorf("%s: Kubernetes sets %s if a service is called sibyl", d.key, v)
		}
	}
	for name := range strings.FieldsSeq("data-dir otlp-grpc otlp-http http epoch opamp sampling-http sampling-grpc") {
		if flags[name] == "" {
			t.Errorf("no flag --%s", name)
		}
	}
}

// A printed configuration can be loaded again, and has the same values.
func TestPrintIsRead(t *testing.T) {
	all := definitions()
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		l := newLayer()
		for i := range all {
			a, b := samples(t, all[i].about())
			if text := rapid.SampledFrom([]string{"", a, b}).Draw(rt, all[i].about().key); text != "" {
				l.readWord(all[i], text, &reader{source: "--x"})
			}
		}
		e := merge(l)
		var b bytes.Buffer
		if err := e.Print(&b); err != nil {
			rt.Fatal(err)
		}
		layers, known := readAll(sources(t, dir, b.String(), nil, nil))
		if len(known) > 0 {
			rt.Fatalf("%v\n%s", known, b.String())
		}
		if diff := cmp.Diff(e.Config, merge(layers...).Config); diff != "" {
			rt.Fatalf("%s\n%s", diff, b.String())
		}
	})
}

func TestSecretsAreHidden(t *testing.T) {
	const secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5"
	e := mustLoad(t, t.TempDir(), "webhooks: [{name: a, url: \"https://u:sesam@hooks.example/T0/geheim?k=geheim\", "+
		"secret: "+secret+"}]\nself-tracing.otlp: http://u:sesam@otlp.example/x\n")
	if h := e.Config.Webhooks[0]; h.Secret != secret || !strings.Contains(h.URL, "geheim") {
		t.Errorf("got %+v", h)
	}
	var b bytes.Buffer
	if err := errors.Join(e.Print(&b), e.JSON(&b)); err != nil {
		t.Fatal(err)
	}
	_, err := Load(sources(t, t.TempDir(), "webhooks:\n- {name: a, url: hooks.example/geheim, secret: geheim}\n"+
		"- {name: b, url: 'ftp://geheim', secret: [geheim]}\nexport.otlp: \"ftp://u:geheim@x\"", nil, nil))
	if err == nil {
		t.Fatal("no error for invalid secrets")
	}
	for _, text := range []string{b.String(), err.Error()} {
		for _, word := range []string{secret, "geheim", "sesam"} {
			if strings.Contains(text, word) {
				t.Errorf("%q is visible in\n%s", word, text)
			}
		}
	}
	var text bytes.Buffer
	if err := e.Print(&text); err != nil {
		t.Fatal(err)
	}
	_, err = Load(sources(t, t.TempDir(), text.String(), nil, nil))
	if all, _ := errors.AsType[Errors](err); len(all) != 3 {
		t.Errorf("reading the printed configuration: got %v, want an error for each of the 3 hidden secrets", err)
	}
	for _, public := range []string{"https://hooks.example/(hidden)", "http://(hidden)@otlp.example/x"} {
		if !strings.Contains(b.String(), public) {
			t.Errorf("no %s in\n%s", public, b.String())
		}
	}
}

func TestWebhookKey(t *testing.T) {
	const secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5"
	file := filepath.Join(t.TempDir(), "secret")
	for _, c := range []struct {
		webhook Webhook
		file    string // contents of the secret file
		want    string
		err     string
	}{
		{Webhook{}, "", "", ""},
		{Webhook{Secret: secret}, "", "012345678901234567890123456789", ""},
		{Webhook{SecretFile: file}, secret + "\n", "012345678901234567890123456789", ""},
		{Webhook{SecretFile: file, Name: "a"}, "geheim", "", "secret of webhook a: want whsec_"},
		{Webhook{SecretFile: file, Name: "a"}, "", "", "secret of webhook a: want whsec_"},
		{Webhook{SecretFile: "none", Name: "a"}, "", "", "secret of webhook a: none: no such file"},
	} {
		if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := c.webhook.Key()
		if string(key) != c.want || (err == nil) != (c.err == "") ||
			(err != nil && !strings.HasPrefix(err.Error(), c.err)) {
			t.Errorf("%+v: %q, %v", c.webhook, key, err)
		}
	}
}

func TestJSON(t *testing.T) {
	e := mustLoad(t, t.TempDir(),
		"epoch: 20s\nkeys: [a]\nmin-samples: 4\nlog.level: debug\nrules: [{entry: s o, merge: true}]\n")
	var b bytes.Buffer
	if err := e.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var keys []keyJSON
	if err := json.Unmarshal(b.Bytes(), &keys); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"epoch": "20s", "keys": []any{"a"}, "min-samples": 4.0, "log.level": "debug",
		"rules": []any{map[string]any{"entry": "s o", "merge": true}},
		"opamp": "off", "memory": "2GiB", "webhooks": []any{},
	}
	if len(keys) != len(definitions()) {
		t.Errorf("%d keys, want %d", len(keys), len(definitions()))
	}
	for _, k := range keys {
		if v, ok := want[k.Key]; ok && !cmp.Equal(k.Value, v) {
			t.Errorf("%s is %v, want %v", k.Key, k.Value, v)
		}
		if k.Key == "epoch" && (k.Default != "10s" || !strings.HasSuffix(k.Origin, "sibyl.yaml:1") ||
			k.Flag != "--epoch" || k.Environment != "SIBYL_EPOCH") {
			t.Errorf("%+v", k)
		}
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		s    Sources
		want string
	}{
		{Sources{File: filepath.Join(dir, "none.yaml")}, "none.yaml: cannot be read: no such file or directory"},
		{Sources{File: dir}, "cannot be read: is a directory"},
		{
			Sources{Getenv: func(name string) string { return map[string]string{"SIBYL_CONFIG": "env.yaml"}[name] }},
			"env.yaml: cannot be read",
		},
		{
			Sources{Flags: &Flags{file: "flag.yaml"}, Getenv: func(string) string { return "env.yaml" }},
			"flag.yaml: cannot be read",
		},
	} {
		if e, err := Load(c.s); err == nil || e != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v; want %s", err, c.want)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		file string
		args []string
		want bool
	}{
		{"", []string{"--epoch=x"}, true},
		{"", []string{"--otlp-tls-cert=x"}, true},
		{"epoch: x", []string{"--epoch=x"}, false},
	} {
		_, err := Load(sources(t, t.TempDir(), c.file, nil, c.args))
		if all, ok := errors.AsType[Errors](err); !ok || all.Usage() != c.want {
			t.Errorf("%v, usage: %v", err, !c.want)
		}
	}
}

// docs/configuration.md equals the reference, and its example is valid. If -rewrite is set, as in go generate, the test
// writes the document.
func TestReference(t *testing.T) {
	name := filepath.Join("..", "docs", "configuration.md")
	if f := flag.Lookup("rewrite"); f.Value.String() == "true" {
		if err := os.WriteFile(name, []byte(reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(reference(), string(text)); diff != "" {
		t.Errorf("docs/configuration.md is outdated, run make generate:\n%s", diff)
	}
	_, example, _ := strings.Cut(reference(), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	if e := mustLoad(t, t.TempDir(), example); e.Config.Rules[0].Objective != 250*time.Millisecond {
		t.Errorf("the example loads as %+v", e.Config)
	}
}

// Package notify accepts every format and event that the configuration accepts.
func TestWebhookWords(t *testing.T) {
	events := []notify.Type{
		notify.IncidentOpened, notify.IncidentLocated, notify.IncidentAcknowledged, notify.IncidentSteady,
		notify.IncidentClosed, notify.ProblemOpened, notify.ProblemLocated, notify.ProblemExplained,
		notify.ProblemClosed, notify.Decided,
	}
	for _, format := range WebhookFormats {
		token := ""
		if notify.NeedsToken(format) {
			token = "geheim"
		}
		e, err := (&Webhook{
			Name:         "a",
			URL:          "http://127.0.0.1:1",
			Format:       format,
			Token:        token,
			Events:       WebhookEvents,
			AllowPrivate: true,
		}).Endpoint()
		if err != nil {
			t.Fatal(err)
		}
		want := &notify.Endpoint{
			Name:         "a",
			URL:          "http://127.0.0.1:1",
			Format:       format,
			Token:        token,
			Events:       events,
			AllowPrivate: true,
		}
		if diff := cmp.Diff(want, e); diff != "" {
			t.Errorf("%s: %s", format, diff)
		}
		if _, err := notify.New(notify.Options{}, []notify.Endpoint{*e}); err != nil {
			t.Error(err)
		}
	}
	if e, err := (&Webhook{Name: "a", SecretFile: "none"}).Endpoint(); e != nil || err == nil {
		t.Errorf("without its secret file: got %+v, want an error", e)
	}
}

func TestLinks(t *testing.T) {
	e := mustLoad(t, t.TempDir(), "trace-url: [{name: Jaeger, url: 'http://jaeger/{trace_id}?from={start_ms}'}]\n"+
		"suspect-url: [{name: Logs, url: 'http://logs/{service}', services: [a*]}]")
	d := e.Config.Directory()
	links := directory.LinksTo(d.Traces, &directory.Request{Trace: trace.ID{15: 1}, Start: 5e6})
	if len(links) != 1 ||
		links[0] != (directory.URL{Name: "Jaeger", URL: "http://jaeger/00000000000000000000000000000001?from=5"}) {
		t.Errorf("%v", links)
	}
	if links := d.ServiceLinks(&directory.Request{Service: "a b"}); len(links) != 1 ||
		links[0] != (directory.URL{Name: "Logs", URL: "http://logs/a%20b"}) {
		t.Errorf("%v", links)
	}
	if links := d.ServiceLinks(&directory.Request{Service: "b"}); len(links) != 0 {
		t.Errorf("%v for a service without such a page", links)
	}
	for _, wrong := range []string{
		"trace-url: [{name: Jaeger, url: 'http://jaeger/{traceid}/{trace_id}'}]",
		"trace-url: [{name: Jaeger, url: 'http://jaeger/'}]",
		"trace-url: [{name: Jaeger, url: 'http://{service}/{trace_id}'}]",
		"suspect-url: [{name: Logs, url: 'http://{service}/'}]",
		"suspect-url: [{name: Logs, url: 'http://logs/{trace_id}'}]",
		"suspect-url: [{name: Logs, url: 'javascript:alert(1)'}]",
	} {
		if _, err := Load(sources(t, t.TempDir(), wrong, nil, nil)); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// Owners are found by service, and their routes name webhooks.
func TestOwners(t *testing.T) {
	const hooks = "webhooks: [{name: pager, url: 'https://pager.example'}]\n"
	e := mustLoad(t, t.TempDir(), hooks+`owners:
- {services: [payment, 'bank-*'], name: Payments, contact: '#pay', route: [pager]}
- {services: ['*'], name: Platform}`)
	d := e.Config.Directory()
	for service, want := range map[string]string{
		"payment": "Payments (#pay)", "bank-eu": "Payments (#pay)", "payments": "Platform",
	} {
		if got := d.Owner(service).String(); got != want {
			t.Errorf("%s belongs to %q, want %q", service, got, want)
		}
	}
	for wrong, want := range map[string]string{
		"owners: [{services: [a]}]":                                 "name is missing",
		"owners: [{name: A}]":                                       "services is missing",
		hooks + "owners: [{services: [a], name: A, route: [page]}]": `owners[0].route: there is no webhook "page"`,
	} {
		if _, err := Load(sources(t, t.TempDir(), wrong, nil, nil)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", wrong, err, want)
		}
	}
}

// Messages to Slack have buttons if there is a secret to check clicks with. Only the default tenant has one.
func TestSlackButtons(t *testing.T) {
	const hook = "[{name: chat, url: 'https://hooks.slack.com/x', format: slack}, {name: a, url: 'https://a.example'}]"
	e := mustLoad(t, t.TempDir(), "acknowledgements: {slack-secret-file: /etc/slack}\nwebhooks: "+hook+
		"\ntenants: [{name: shop, webhooks: "+hook+"}]")
	for _, c := range []*Config{&e.Config, e.Config.Tenant("shop", 0.5)} {
		all, err := c.Endpoints()
		if err != nil || len(all) != 2 || all[0].Buttons != (c == &e.Config) || all[1].Buttons {
			t.Errorf("%+v %v", all, err)
		}
	}
}

// Tokens and passwords are read from files. They are neither printed nor repeated in errors.
func TestNotificationSecrets(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte("geheim2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := mustLoad(t, dir, `webhooks:
  - {name: pager, url: "https://events.pagerduty.com", format: pagerduty, token: geheim1}
  - {name: genie, url: "https://api.opsgenie.com", format: opsgenie, token-file: `+file+`}
email:
  - {name: mail, server: "smtp.example:587", from: "Sibyl <sibyl@example.com>", to: [a@b.example], username: sibyl, password: geheim3}
`)
	all, err := e.Config.Endpoints()
	if err != nil || len(all) != 3 || all[0].Token != "geheim1" || all[1].Token != "geheim2" ||
		all[2].Mail.Password != "geheim3" || all[2].Mail.From.Name != "Sibyl" {
		t.Fatalf("%+v %v", all, err)
	}
	if _, err := notify.New(notify.Options{}, all); err != nil {
		t.Error(err)
	}
	var printed strings.Builder
	if err := errors.Join(e.Print(&printed), e.JSON(&printed)); err != nil ||
		strings.Contains(printed.String(), "geheim") {
		t.Errorf("%v: secrets are printed: %s", err, printed.String())
	}
	const hook = "webhooks: [{name: a, url: 'https://a.example', "
	const mail = "email: [{name: a, server: 'a:25', from: a@b, to: [c@d], "
	for wrong, want := range map[string]string{
		hook + "format: pagerduty}]":                                      "needs a token",
		hook + "token: geheim}]":                                          "has no token",
		hook + "format: opsgenie, token: geheim, token-file: x}]":         "both given",
		hook + "format: pagerduty, token: \"ge\\nheim\"}]":                "want one line",
		mail + "username: u}]":                                            "has no password",
		mail + "password: geheim}]":                                       "a password needs a user",
		mail + "username: u, password: geheim, security: none}]":          "must not be sent unencrypted",
		"email: [{name: a, server: a, from: a@b, to: [c@d]}]":             "a host and a port",
		"email: [{name: a, server: 'a:25', from: a, to: [c@d]}]":          "an address like",
		"email: [{name: a, server: 'a:25', from: a@b, to: []}]":           "no recipient",
		"email: [{name: a, server: ':25', from: a@b, to: [c@d]}]":         "a host and a port",
		hook + "format: slack}]\n" + mail + "security: tls}]":             "there is already a webhook",
		"webhooks: [{name: a, url: 'http://127.0.0.1:1/geheim'}]":         "set allow-private: true",
		"webhooks: [{name: a, url: 'http://[fd00::1]/geheim'}]":           "set allow-private: true",
		"webhooks: [{name: a, url: 'http://Localhost:1/geheim'}]":         "set allow-private: true",
		"email: [{name: a, server: '10.0.0.1:25', from: a@b, to: [c@d]}]": "set allow-private: true",
	} {
		if _, err := Load(sources(t, dir, wrong, nil, nil)); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v, want %q", wrong, err, want)
		}
	}
}

// User names and queries in URLs are hidden because they may be tokens.
func TestHiddenURLs(t *testing.T) {
	for url, want := range map[string]string{
		"http://tempo:4318/v1/traces":      "http://tempo:4318/v1/traces",
		"http://geheim@tempo/x":            "http://(hidden)@tempo/x",
		"https://u:geheim@tempo?a=geheim":  "https://(hidden)@tempo?(hidden)",
		"https://tempo/v1?api-key=geheim1": "https://tempo/v1?(hidden)",
	} {
		if got := endpoint().text(url); got != want {
			t.Errorf("%s is shown as %s, want %s", url, got, want)
		}
	}
	if _, err := Load(Sources{Getenv: func(name string) string {
		return map[string]string{"SIBYL_EXPORT_OTLP": "ftp://tempo?key=geheim"}[name]
	}}); err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("error %v, want one without the query", err)
	}
}

// With less than 1 GiB of memory, the default sizes are lower, because requests of the normal default size would exceed
// it.
func TestSmallMemory(t *testing.T) {
	for memory, want := range map[string][3]int64{
		"64MiB":  {4 * mib, 12 * mib, 45 * mib * 3 / 16},
		"512MiB": {32 * mib, 96 * mib, 64 * mib},
		"1GiB":   {64 * mib, 192 * mib, 64 * mib},
		"16GiB":  {64 * mib, 192 * mib, 64 * mib},
	} {
		e, err := Load(Sources{
			Getenv: func(name string) string { return map[string]string{"SIBYL_MEMORY": memory}[name] },
		})
		if err != nil {
			t.Fatal(err)
		}
		got := [3]int64{e.Config.OTLP.MaxRequest, e.Config.MaxInFlight(), e.Config.OpenTraces().MaxBytes}
		if got != want {
			t.Errorf("memory %s: got %d, want %d", memory, got, want)
		}
	}
}

// The user name and the password in a link template are neither printed nor repeated in an error. The printed text
// isn't accepted as a template.
func TestPasswordsOfLinksAreHidden(t *testing.T) {
	text := "trace-url: [{name: Jaeger, url: 'https://alovelace:geheim@jaeger/{trace_id}?mail=a@b'}]\n" +
		"suspect-url: [{name: Logs, url: 'https://alovelace:ge@heim@logs/{service}'}]"
	e := mustLoad(t, t.TempDir(), text)
	if u := e.Config.TraceURL[0].URL; u != "https://alovelace:geheim@jaeger/{trace_id}?mail=a@b" {
		t.Errorf("loaded %s", u)
	}
	var b strings.Builder
	if err := e.Print(&b); err != nil {
		t.Fatal(err)
	}
	if err := e.JSON(&b); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"alovelace", "geheim", "heim"} {
		if strings.Contains(b.String(), secret) {
			t.Errorf("%q is printed: %s", secret, b.String())
		}
	}
	for _, want := range []string{"https://(hidden)@jaeger/{trace_id}?mail=a@b", "https://(hidden)@logs/{service}"} {
		if strings.Count(b.String(), want) != 2 {
			t.Errorf("want %s twice in %s", want, b.String())
		}
	}
	for _, bad := range []string{"https://alovelace:geheim@jaeger/", "https://(hidden)@jaeger/{trace_id}"} {
		_, err := Load(sources(t, t.TempDir(), "trace-url: [{name: Jaeger, url: '"+bad+"'}]", nil, nil))
		if err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
