package config

import (
	"fmt"
	"strings"
)

//go:generate go test . -run ^TestReference$ -rewrite

// introduction is what docs/configuration.md begins with.
const introduction = "<!-- Made by go generate from the definitions in config/keys.go. Change those. -->\n" + `# Configuration
` + "`sibyl serve`" + ` works without any. What it does can be said in one YAML file (` + "`--config FILE` or `SIBYL_CONFIG`" + `), by environment variables and by flags; a flag goes before
the environment, that before the file, that before the default.

` + "```yaml" + `
data-dir: /var/lib/sibyl
otlp:
  grpc: 0.0.0.0:4317
  tls: {cert: /etc/sibyl/cert.pem, key: /etc/sibyl/key.pem}
retention:
  age: 14d
rules:
  - entry: shop GET /cart
    objective: 250ms
trace-url:
  - {name: Jaeger, url: "https://jaeger.example/trace/{trace_id}"}
` + "```" + `

Every key has a flag, with dashes for dots, and an environment variable, in capitals with underscores: ` + "`otlp.grpc` is `--otlp-grpc` and `SIBYL_OTLP_GRPC`" + `. Where the value is a
list of sections, flag and variable take the whole list as YAML or JSON: ` + "`--trace-url '[{name: Jaeger, url: …}]'`" + `; a list of words can be given with commas. An empty variable
says nothing, and variables that belong to no key are left alone. In the file, ` + "`otlp: {grpc: …}` and `otlp.grpc: …`" + ` mean the same; a key that does not exist is an error, and so
are aliases, anchors and tags.

Durations are written like ` + "`250ms`, `10s`, `1h30m` or `7d`" + `, sizes like ` + "`64MiB` or `2GiB` (`MB` is a million bytes)" + `. An address is a host and a port; ` + "`off`" + ` means that nobody listens.
Names of files count from the directory that the process runs in.

` + "`sibyl config check FILE`" + ` says everything that is wrong with a file, with line and remedy, and exits with 1 if there is anything. It does not look at files that the file names.
` + "`sibyl config print`" + ` takes the flags of ` + "`sibyl serve`" + ` and shows what is in effect and where each value comes from; secrets are hidden.

**Reload.** On SIGHUP, or when the text of the file changes (it is looked at every two seconds, through links, so that a mounted ConfigMap counts), keys marked *yes* below are applied, and
files with secrets read again. What decisions depend on counts from the end of the epoch on. A change of any other key is refused and logged, and holds after a restart. A file with a mistake
changes nothing; the log says what is wrong.

**Access.** An address that other machines can reach is only listened on if there is a token (` + "`sibyl token create`" + `) or its ` + "`tls.client-ca`" + ` is set.

## Keys
`

// Reference returns docs/configuration.md.
func Reference() string {
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteString("| key | value | default | reload | what it does |\n|---|---|---|---|---|\n")
	all := definitions()
	for i := range all {
		d := &all[i]
		preset, below := d.defaultText()
		reload := "restart"
		if d.live {
			reload = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s%s |\n", d.key, d.kind.want(), preset, reload, d.help, below)
	}
	for i := range all {
		if l, ok := all[i].kind.(interface{ definitions() []definition }); ok {
			fmt.Fprintf(&b, "\n## Each element of `%s`\n| key | value | default | what it is |\n|---|---|---|---|\n", all[i].key)
			for _, d := range l.definitions() {
				preset, _ := d.defaultText()
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.key, d.kind.want(), preset, d.help)
			}
		}
	}
	return b.String()
}

// defaultText returns the default as a cell of a table, and what must be said of it elsewhere because it is long.
func (d *definition) defaultText() (cell, elsewhere string) {
	switch v := d.preset.(type) {
	case nil:
		return "", ""
	case []string:
		if len(v) > 0 {
			return "see right", " By default `" + strings.Join(v, "`, `") + "`."
		}
	}
	text, err := d.yaml(d.preset)
	if err != nil {
		panic(err) // a default that cannot be written
	}
	return "`" + text + "`", ""
}
