package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Print writes the configuration as YAML. Comments describe each key and give the origin of each value that isn't a
// default. Secrets are hidden. The output can be loaded again, except for hidden secrets.
func (e *Effective) Print(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("# The configuration of sibyl serve in effect. " +
		"Flags override the environment, which overrides the file, which overrides defaults.\n" +
		"# The comment behind a value gives its origin, unless it is the default. Secrets are hidden.\n")
	open := ""
	for _, d := range definitions() {
		key := d.about().key
		section, name := above(key), key[strings.LastIndexByte(key, '.')+1:]
		b.WriteByte('\n')
		openSection(&b, open, section)
		open = section
		if err := e.printKey(&b, d, strings.Repeat("  ", strings.Count(key, ".")), name); err != nil {
			return fmt.Errorf("write %s: %w", key, err)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// openSection writes the names of a section and its parents. It omits the parents that the previous section, last, has
// in common with section.
func openSection(b *bytes.Buffer, last, section string) {
	if section == "" {
		return
	}
	names := strings.Split(section, ".")
	for depth, name := range names {
		if !strings.HasPrefix(last+".", strings.Join(names[:depth+1], ".")+".") {
			b.WriteString(strings.Repeat("  ", depth) + name + ":\n")
		}
	}
}

// printKey writes a key, called name within its section, with its description, its value and the value's origin.
func (e *Effective) printKey(b *bytes.Buffer, d definition[Config], indent, name string) error {
	about := d.about()
	fmt.Fprintf(b, "%s# %s\n%s# Want %s.%s\n", indent, about.help, indent, about.want, about.restart())
	text, err := yamlText(d.node(&e.Config))
	if err != nil {
		return err
	}
	b.WriteString(indent + name + ":")
	origin := e.originComment(d)
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

// originComment returns the comment after a value, with the origin of the value. The comment also contains the default
// if the value differs from it and the default fits on the line. originComment returns "" for a default.
func (e *Effective) originComment(d definition[Config]) string {
	about := d.about()
	origin := e.origins[about.key]
	if origin == "" {
		return ""
	}
	var defaults Config
	d.setDefault(&defaults)
	text, err := yamlText(about.defaultNode)
	if err != nil || strings.Contains(text, "\n") || equal(d, &e.Config, &defaults) {
		return " # " + origin
	}
	return " # " + origin + "; default: " + text
}

// restart returns a note that a change of the key needs a restart, or "" if it doesn't.
func (d *description) restart() string {
	if d.live {
		return ""
	}
	return " A change needs a restart."
}

// yamlText returns a value as YAML. Scalars and empty lists are on one line, without a line break; other values take
// several lines.
func yamlText(n *yaml.Node) (string, error) {
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

// keyJSON is the JSON form of a key.
type keyJSON struct {
	Key         string `json:"key"`
	Value       any    `json:"value"`
	Default     any    `json:"default"`
	Origin      string `json:"origin"` // empty for a default
	Flag        string `json:"flag"`
	Environment string `json:"environment"`
	Reloadable  bool   `json:"reloadable"`
	Help        string `json:"help"`
}

// JSON writes the configuration as a list with one object per key. Secrets are hidden.
func (e *Effective) JSON(w io.Writer) error {
	all := definitions()
	keys := make([]keyJSON, len(all))
	for i, d := range all {
		about := d.about()
		keys[i] = keyJSON{
			Key:         about.key,
			Origin:      e.origins[about.key],
			Flag:        "--" + dashed(about.key),
			Environment: variable(about.key),
			Reloadable:  about.live,
			Help:        about.help,
		}
		if err := d.node(&e.Config).Decode(&keys[i].Value); err != nil {
			return fmt.Errorf("write %s: %w", about.key, err)
		}
		if err := about.defaultNode.Decode(&keys[i].Default); err != nil {
			return fmt.Errorf("write the default of %s: %w", about.key, err)
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(keys)
}
