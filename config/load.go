package config

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Sources holds the sources of a configuration. It can be passed to Load several times.
type Sources struct {
	File   string              // name of the YAML file; empty: use --config, then SIBYL_CONFIG, then no file
	Getenv func(string) string // nil: no environment
	Flags  *Flags              // nil: no flags
}

// Effective is a valid configuration with the origins of its values. It is immutable.
type Effective struct {
	Config  Config
	File    string            // the file that was read; may be empty
	Read    string            // the [Fingerprint] of File when it was read
	origins map[string]string // of the keys set by a source: "sibyl.yaml:3", "--epoch", "SIBYL_EPOCH"
}

// Origin returns the origin of a key's value, like "sibyl.yaml:3", "--epoch" or "SIBYL_EPOCH", or "" for a default.
func (e *Effective) Origin(key string) string { return e.origins[key] }

// Fingerprint returns a hash of the file's contents, or the text of the error if the file can't be read. It returns ""
// if file is empty. We don't use the modification time and size, because Kubernetes updates a mounted ConfigMap by
// swapping a symlink.
func Fingerprint(file string) string {
	if file == "" {
		return ""
	}
	text, err := readFile(file)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// layer holds the values set by one source.
type layer struct {
	config  Config            // fields of keys that the source doesn't set are zero
	origins map[string]string // of the keys set by the source
}

func newLayer() *layer { return &layer{origins: make(map[string]string)} }

// Load reads the sources and returns the configuration. If anything is invalid, it returns [Errors] with up to
// maxErrors errors instead.
func Load(s Sources) (*Effective, error) {
	if s.File == "" && s.Flags != nil {
		s.File = s.Flags.file
	}
	if s.File == "" && s.Getenv != nil {
		s.File = s.Getenv(variable("config"))
	}
	read := Fingerprint(s.File) // before readAll, so that a later change is noticed
	layers, errs := readAll(s)
	e := merge(layers...)
	e.File, e.Read = s.File, read
	errs = append(errs, e.check(errs)...)
	if len(errs) > 0 {
		return nil, errs[:min(len(errs), maxErrors)]
	}
	return e, nil
}

// readAll returns the layers of all sources in ascending precedence.
func readAll(s Sources) ([]*layer, Errors) {
	file := newLayer()
	errs := file.readFile(s.File)
	env, more := readEnvironment(s.Getenv)
	errs = append(errs, more...)
	flags, more := s.Flags.read()
	return []*layer{file, env, flags}, append(errs, more...)
}

// merge returns the defaults overridden by each layer in order.
func merge(layers ...*layer) *Effective {
	e := &Effective{origins: make(map[string]string)}
	for _, d := range definitions() {
		d.setDefault(&e.Config)
		for _, l := range layers {
			if l.origins[d.about().key] != "" {
				d.value(&e.Config).Set(d.value(&l.config))
			}
		}
	}
	for _, l := range layers {
		maps.Copy(e.origins, l.origins)
	}
	e.fit()
	return e
}

// fit sets the defaults that depend on other keys. If memory is small, it lowers otlp.max-request to
// memory/requestShare. It sets otlp.require-token if senders on other machines need no certificate.
func (e *Effective) fit() {
	c := &e.Config
	if e.origins["otlp.require-token"] == "" {
		c.OTLP.RequireToken = slices.ContainsFunc(c.Exposed(),
			func(l Listener) bool { return strings.HasPrefix(l.Key, "otlp.") })
	}
	if e.origins["otlp.max-request"] == "" {
		c.OTLP.MaxRequest = min(c.OTLP.MaxRequest, c.Memory/requestShare)
	}
}

// readFile adds the values from a file. If name is "", it does nothing.
func (l *layer) readFile(name string) Errors {
	if name == "" {
		return nil
	}
	r := &reader{file: name}
	text, err := readFile(name)
	if err != nil {
		r.fail(&yaml.Node{}, "", "cannot be read: %v", err)
		return r.errors
	}
	l.readText(r, text)
	return r.errors
}

// readText adds the values in text, the contents of a file, and records errors in r.
func (l *layer) readText(r *reader, text []byte) {
	root := r.parse(text)
	switch {
	case root == nil: // empty, or invalid YAML
	case root.Kind == yaml.MappingNode:
		w := walker[Config]{
			r:           r,
			definitions: definitions(),
			to:          &l.config,
			given:       make(map[string]bool),
			origins:     l.origins,
		}
		w.section(root, "")
	case root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null":
	default:
		r.fail(root, "", "want keys and values, like epoch: 10s, not a %s", shapeOf(root))
	}
}

// readEnvironment returns the values in environment variables. It ignores empty variables. It also ignores unknown
// ones, because Kubernetes sets some with the same prefix.
func readEnvironment(getenv func(string) string) (*layer, Errors) {
	l := newLayer()
	var errs Errors
	if getenv == nil {
		return l, nil
	}
	for _, d := range definitions() {
		name := variable(d.about().key)
		if text := getenv(name); text != "" {
			errs = append(errs, l.readWord(d, text, &reader{source: name})...)
		}
	}
	return l, errs
}

// readWord adds the value of the key d from the text of a flag or an environment variable.
func (l *layer) readWord(d definition[Config], text string, r *reader) Errors {
	about := d.about()
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if !about.scalar {
		if n = r.parse([]byte(text)); n == nil {
			if len(r.errors) == 0 {
				r.fail(&yaml.Node{}, about.key, "no value; want %s", about.want)
			}
			return r.errors
		}
	}
	if d.read(r, about.key, n, &l.config) {
		l.origins[about.key] = r.source
	}
	return r.errors
}

// dashed returns the name of a key's flag, without the leading dashes.
func dashed(key string) string { return strings.ReplaceAll(key, ".", "-") }

// variable returns the name of a key's environment variable.
func variable(key string) string {
	return "SIBYL_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// Flags holds the values of the flags for keys, and of --config.
type Flags struct {
	file string
	set  map[string]string // by key
}

// AddFlags adds a flag to fs for each key, plus --config. Load checks the values, so that it can report all errors at
// once. If keys are given, AddFlags adds flags only for those keys, for a command that doesn't use the others.
//
// Each flag has an annotation named group with the title of its group.
func AddFlags(fs *pflag.FlagSet, group string, keys ...string) *Flags {
	f := &Flags{set: make(map[string]string)}
	fs.StringVar(&f.file, "config", "", "YAML file with the configuration: --otlp-grpc is its key grpc in the "+
		"section otlp (sibyl config print lists all)")
	fs.Lookup("config").Annotations = map[string][]string{group: {groups[0].title}}
	for _, g := range groups {
		for _, d := range g.keys() {
			about := d.about()
			if len(keys) > 0 && !slices.Contains(keys, about.key) {
				continue
			}
			flag := fs.VarPF(&flagValue{about: about, set: f.set}, dashed(about.key), "", flagHelp(about.help))
			flag.Annotations = map[string][]string{group: {g.title}}
			if about.typeName == "bool" {
				flag.NoOptDefVal = "true"
			}
		}
	}
	return f
}

// flagHelp returns help in the style of flags: without a full stop at the end, and in lower case unless it starts with
// an abbreviation.
func flagHelp(help string) string {
	help = strings.TrimSuffix(help, ".")
	if second := help[1]; second == ' ' || second >= 'a' && second <= 'z' {
		return strings.ToLower(help[:1]) + help[1:]
	}
	return help
}

// read returns the values of the flags that were set. f may be nil.
func (f *Flags) read() (*layer, Errors) {
	l := newLayer()
	var errs Errors
	if f == nil {
		return l, nil
	}
	for _, d := range definitions() {
		key := d.about().key
		if text, ok := f.set[key]; ok {
			errs = append(errs, l.readWord(d, text, &reader{source: "--" + dashed(key), usage: true})...)
		}
	}
	return l, errs
}

// flagValue is the [pflag.Value] of a key's flag. It only stores the text; see AddFlags.
type flagValue struct {
	about *description
	set   map[string]string
}

// String implements pflag.Value.
func (v *flagValue) String() string {
	if v.about == nil { // pflag compares with the zero value
		return ""
	}
	if text, ok := v.set[v.about.key]; ok {
		return text
	}
	if v.about.scalar {
		return v.about.defaultNode.Value
	}
	return ""
}

// Type implements pflag.Value.
func (v *flagValue) Type() string { return v.about.typeName }

// Set implements pflag.Value.
func (v *flagValue) Set(text string) error {
	v.set[v.about.key] = text
	return nil
}

// Reload returns the configuration to use when next has been loaded while current is in effect. It is next, except that
// changes to keys that need a restart are refused. refused lists these keys in the order of the table. If the
// combination is invalid, Reload returns current and refuses all changes. Reload doesn't modify its arguments.
func Reload(current, next *Effective) (applied *Effective, refused []string) {
	mixed := newLayer()
	for _, d := range definitions() {
		key, from := d.about().key, next
		if !d.about().live && !equal(d, &current.Config, &next.Config) {
			from = current
			refused = append(refused, key)
		}
		if origin := from.origins[key]; origin != "" {
			mixed.origins[key] = origin
			d.value(&mixed.config).Set(d.value(&from.Config))
		}
	}
	e := merge(mixed)
	e.File, e.Read = next.File, next.Read
	if len(e.check(nil)) == 0 {
		return e, refused
	}
	return current, Changes(current, next)
}

// Changes returns the keys whose values differ between two configurations.
func Changes(a, b *Effective) []string {
	var keys []string
	for _, d := range definitions() {
		if !equal(d, &a.Config, &b.Config) {
			keys = append(keys, d.about().key)
		}
	}
	return keys
}
