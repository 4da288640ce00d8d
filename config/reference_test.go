package config

import (
	"fmt"
	"strings"
)

//go:generate go test . -run ^TestReference$ -rewrite

// introduction is the start of docs/configuration.md.
const introduction = "<!-- Made by go generate from the definitions in config/keys.go. Change those. -->\n" + `# Configuration
` + "`sibyl serve`" + ` needs no configuration. Settings come from one YAML file (` + "`--config FILE` or `SIBYL_CONFIG`" + `), environment variables and flags. Flags override the
environment, which overrides the file, which overrides the defaults.

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
objectives:
  - entry: shop POST /checkout
    latency: {percentile: 99, below: 300ms}
    errors: 0.1%
gates: {growth: 20%, time: 5ms}
trace-url:
  - {name: Jaeger, url: "https://jaeger.example/trace/{trace_id}"}
` + "```" + `

Every key has a flag, with dashes for dots, and an environment variable, in capitals with underscores: ` + "`otlp.grpc` is `--otlp-grpc` and `SIBYL_OTLP_GRPC`" + `. If the value is a
list of sections, flag and variable take the whole list as YAML or JSON: ` + "`--trace-url '[{name: Jaeger, url: …}]'`" + `. Lists of words may be separated by commas. Empty and unknown
variables are ignored. In the file, ` + "`otlp: {grpc: …}` and `otlp.grpc: …`" + ` are equivalent; unknown keys, aliases, anchors and tags are errors.

Durations are written like ` + "`250ms`, `10s`, `1h30m` or `7d`" + `, sizes like ` + "`64MiB` or `2GiB` (`MB` is a million bytes), shares like `0.1%` or `0.001`" + `. An address is a host and a port; ` + "`off`" + ` disables the listener.
File names are relative to the working directory of the process.

` + "`sibyl config check FILE`" + ` reports every error in a file, with its line and remedy, and exits with 1 if there is any. It does not read the files that the file names. ` + "`sibyl serve --config FILE`" + ` reports the same errors.
` + "`sibyl config print`" + ` takes the flags of ` + "`sibyl serve`" + ` and shows the values in effect and their origins; secrets are hidden.

**Reload.** On SIGHUP, or when the contents of the file change, Sibyl applies the keys marked *yes* below and reads files with secrets again. It checks the contents every two seconds and
follows symbolic links, so a mounted ConfigMap works. Changes that affect decisions take effect at the end of the epoch. A change of any other key is refused and logged; it takes effect after a
restart. A file with an error changes nothing; the log reports the error.

**Access.** Sibyl only listens on an address that other machines can reach if there is a token (` + "`sibyl token create`" + `) or its ` + "`tls.client-ca`" + ` is set; the API also if people log in (` + "`auth.oidc`" + `).

## Keys
`

// reference returns docs/configuration.md.
func reference() string {
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteString("| key | value | default | reload | description |\n|---|---|---|---|---|\n")
	all := definitions()
	for _, d := range all {
		about := d.about()
		defaults, below := about.defaultText()
		reload := "restart"
		if about.live {
			reload = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s%s |\n", about.key, about.want, defaults, reload, about.help, below)
	}
	for _, d := range all {
		if elements := d.about().elements; elements != nil {
			fmt.Fprintf(&b, "\n## Each element of `%s`\n| key | value | default | description |\n|---|---|---|---|\n",
				d.about().key)
			for _, e := range elements {
				defaults, _ := e.defaultText()
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", e.key, e.want, defaults, e.help)
			}
		}
	}
	return b.String()
}

// defaultText returns the default as a table cell. If the default is long, the second result is a sentence that lists
// it instead.
func (d *description) defaultText() (cell, elsewhere string) {
	n := d.defaultNode
	switch {
	case n == nil:
		return "", ""
	case len(n.Content) > 0:
		words := make([]string, len(n.Content))
		for i, item := range n.Content {
			words[i] = item.Value
		}
		return "see right", " By default `" + strings.Join(words, "`, `") + "`."
	}
	text, err := yamlText(n)
	if err != nil {
		panic(err) // defaults are constants
	}
	return "`" + text + "`", ""
}
