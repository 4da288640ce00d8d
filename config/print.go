package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Print writes the configuration as YAML with comments that say what each key does and where a value that is no default comes from.
// Secrets are hidden. What it writes can be loaded again, but for the secrets.
func (e *Effective) Print(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("# The configuration of sibyl serve in effect: flags go before the environment, that before the file, that before defaults.\n" +
		"# Behind a value that is no default stands where it comes from. Secrets are hidden.\n")
	open := ""
	for _, d := range definitions() {
		section, name := above(d.key), d.key[strings.LastIndexByte(d.key, '.')+1:]
		b.WriteByte('\n')
		openSection(&b, open, section)
		open = section
		if err := e.printKey(&b, &d, strings.Repeat("  ", strings.Count(d.key, ".")), name); err != nil {
			return fmt.Errorf("write %s: %w", d.key, err)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// openSection writes the names of the sections on the way to a section that the way to the last one did not have.
func openSection(b *bytes.Buffer, last, section string) {
	if section == "" {
		return
	}
	way := strings.Split(section, ".")
	for depth, name := range way {
		if !strings.HasPrefix(last+".", strings.Join(way[:depth+1], ".")+".") {
			b.WriteString(strings.Repeat("  ", depth) + name + ":\n")
		}
	}
}

// printKey writes one key with its value.
func (e *Effective) printKey(b *bytes.Buffer, d *definition, indent, name string) error {
	fmt.Fprintf(b, "%s# %s\n%s# Want %s.%s\n", indent, d.help, indent, d.kind.want(), d.restart())
	text, err := d.yaml(e.values[d.key])
	if err != nil {
		return err
	}
	b.WriteString(indent + name + ":")
	origin := e.origin(d)
	if !strings.Contains(text, "\n") {
		b.WriteString(" " + text + origin + "\n")
		return nil
	}
	b.WriteString(origin + "\n")
	for line := range strings.Lines(text) {
		b.WriteString(indent + "  " + line)
	}
	return nil
}

// origin returns the comment behind a value.
func (e *Effective) origin(d *definition) string {
	origin := e.origins[d.key]
	if origin == "" {
		return ""
	}
	text, err := d.yaml(d.preset)
	if err != nil || strings.Contains(text, "\n") || reflect.DeepEqual(e.values[d.key], d.preset) {
		return " # " + origin
	}
	return " # " + origin + "; default: " + text
}

// restart says whether the key needs a restart to change.
func (d *definition) restart() string {
	if d.live {
		return ""
	}
	return " A change needs a restart."
}

// yaml returns a value as YAML: on one line without an end if it is a scalar or an empty list, else on several.
func (d *definition) yaml(v any) (string, error) {
	n := d.kind.node(v)
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(n); err != nil {
		return "", err
	}
	text := b.String()
	if n.Kind == yaml.ScalarNode || len(n.Content) == 0 {
		text = strings.TrimSuffix(text, "\n")
	}
	return text, nil
}

// keyJSON is what JSON says of one key.
type keyJSON struct {
	Key         string `json:"key"`
	Value       any    `json:"value"`
	Default     any    `json:"default"`
	Origin      string `json:"origin"` // empty: the default
	Flag        string `json:"flag"`
	Environment string `json:"environment"`
	Reloadable  bool   `json:"reloadable"`
	Help        string `json:"help"`
}

// JSON writes the configuration as a list with one object for each key. Secrets are hidden.
func (e *Effective) JSON(w io.Writer) error {
	all := definitions()
	keys := make([]keyJSON, len(all))
	for i := range all {
		d := &all[i]
		keys[i] = keyJSON{
			Key: d.key, Origin: e.origins[d.key], Flag: "--" + dashed(d.key), Environment: variable(d.key), Reloadable: d.live, Help: d.help,
		}
		if err := d.kind.node(e.values[d.key]).Decode(&keys[i].Value); err != nil {
			return fmt.Errorf("write %s: %w", d.key, err)
		}
		if err := d.kind.node(d.preset).Decode(&keys[i].Default); err != nil {
			return fmt.Errorf("write the default of %s: %w", d.key, err)
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(keys)
}
