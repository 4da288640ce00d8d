package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	koanfmaps "github.com/knadh/koanf/maps"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Sources are where a configuration comes from. They can be loaded again.
type Sources struct {
	File   string              // name of the YAML file; empty: that of --config, then of SIBYL_CONFIG, then none
	Getenv func(string) string // nil: no environment
	Flags  *Flags              // nil: no flags
}

// Effective is a configuration that nothing is wrong with, and where it comes from. It is immutable.
type Effective struct {
	Config  Config
	File    string            // that was read; empty: none
	Read    string            // the [Fingerprint] of File when it was
	values  map[string]any    // of all keys, as in Config
	origins map[string]string // of values that a source gave: "sibyl.yaml:3", "--epoch", "SIBYL_EPOCH"
}

// Origin returns where the value of a key comes from, like "sibyl.yaml:3", "--epoch" or "SIBYL_EPOCH"; "" for a default.
func (e *Effective) Origin(key string) string { return e.origins[key] }

// Fingerprint returns something that two texts of a file do not share, nor its absence and a text. It looks at the text itself: neither
// time nor size need differ when a link to a directory is set elsewhere, as Kubernetes does. "" for no file.
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

// layer is what one source says.
type layer struct {
	values  map[string]any
	origins map[string]string
}

func newLayer() layer { return layer{make(map[string]any), make(map[string]string)} }

func (l layer) add(key string, v any, origin string) { l.values[key], l.origins[key] = v, origin }

// Read implements koanf.Provider.
func (l layer) Read() (map[string]any, error) { return koanfmaps.Unflatten(l.values, "."), nil }

// ReadBytes implements koanf.Provider.
func (l layer) ReadBytes() ([]byte, error) { return nil, errors.ErrUnsupported }

// Load reads the sources. The error is of type [Mistakes] and holds all of them; there is no configuration then.
func Load(s Sources) (*Effective, error) {
	if s.File == "" && s.Flags != nil {
		s.File = s.Flags.file
	}
	if s.File == "" && s.Getenv != nil {
		s.File = s.Getenv(variable("config"))
	}
	read := Fingerprint(s.File) // before, so that what changes meanwhile is noticed
	layers, mistakes := readAll(s)
	e := merge(layers...)
	e.File, e.Read = s.File, read
	mistakes = append(mistakes, e.check(mistakes)...)
	if len(mistakes) > 0 {
		return nil, mistakes[:min(len(mistakes), mostMistakes)]
	}
	return e, nil
}

// readAll returns what each source says, the one that goes before the others last.
func readAll(s Sources) ([]layer, Mistakes) {
	file := newLayer()
	mistakes := file.readFile(s.File)
	env, more := readEnvironment(s.Getenv)
	mistakes = append(mistakes, more...)
	flags, more := s.Flags.read()
	return []layer{file, env, flags}, append(mistakes, more...)
}

// merge lays the sources over the defaults, and each over those before it.
func merge(layers ...layer) *Effective {
	defaults := newLayer()
	for _, d := range definitions() {
		defaults.values[d.key] = d.preset
	}
	e := &Effective{values: defaults.values, origins: make(map[string]string)}
	k := koanf.New(".")
	for _, l := range append([]layer{defaults}, layers...) {
		if err := k.Load(l, nil); err != nil {
			panic(err) // layers are in memory
		}
		maps.Copy(e.values, l.values)
		maps.Copy(e.origins, l.origins)
	}
	err := k.UnmarshalWithConf("", &e.Config, koanf.UnmarshalConf{
		DecoderConfig: &mapstructure.DecoderConfig{ErrorUnused: true, ErrorUnset: true},
	})
	if err != nil {
		panic(fmt.Sprintf("the keys do not fit the fields of Config: %v", err))
	}
	return e
}

// readFile adds what a file says; "" is no file.
func (l layer) readFile(name string) Mistakes {
	if name == "" {
		return nil
	}
	r := &reader{file: name}
	text, err := readFile(name)
	if err != nil {
		r.wrong(&yaml.Node{}, "", "cannot be read: %v", err)
		return r.mistakes
	}
	l.readText(r, text)
	return r.mistakes
}

// readText adds what the text of a file says.
func (l layer) readText(r *reader, text []byte) {
	all := definitions()
	root := r.parse(text)
	switch {
	case root == nil: // nothing in it, or nothing that could be read
	case root.Kind == yaml.MappingNode:
		w := walker{r: r, definitions: all, given: make(map[string]bool), put: func(i int, v any, at *yaml.Node) {
			l.add(all[i].key, v, r.where(at))
		}}
		w.section(root, "")
	case root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null":
	default:
		r.wrong(root, "", "want keys and values, like epoch: 10s, not a %s", shapeOf(root))
	}
}

// readEnvironment returns what environment variables say. Those that belong to no key are left alone: Kubernetes sets some that begin
// alike. One that is empty says nothing.
func readEnvironment(getenv func(string) string) (layer, Mistakes) {
	l := newLayer()
	var mistakes Mistakes
	if getenv == nil {
		return l, nil
	}
	for _, d := range definitions() {
		if text := getenv(variable(d.key)); text != "" {
			mistakes = append(mistakes, l.readWord(&d, text, &reader{source: variable(d.key)})...)
		}
	}
	return l, mistakes
}

// readWord adds what a flag or an environment variable says.
func (l layer) readWord(d *definition, text string, r *reader) Mistakes {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if _, plain := d.kind.(*scalar); !plain {
		if n = r.parse([]byte(text)); n == nil {
			if len(r.mistakes) == 0 {
				r.wrong(&yaml.Node{}, d.key, "no value; want %s", d.kind.want())
			}
			return r.mistakes
		}
	}
	if v, ok := d.kind.read(r, d.key, n); ok {
		l.add(d.key, v, r.source)
	}
	return r.mistakes
}

// dashed returns the name of a key's flag, without its dashes in front.
func dashed(key string) string { return strings.ReplaceAll(key, ".", "-") }

// variable returns the name of a key's environment variable.
func variable(key string) string {
	return "SIBYL_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// Flags are the flags of all keys, and --config.
type Flags struct {
	file string
	set  map[string]string // by key
}

// AddFlags adds to fs a flag for each key, and --config. The values are looked at when they are loaded, so that all that is wrong is told
// at once.
func AddFlags(fs *pflag.FlagSet) *Flags {
	f := &Flags{set: make(map[string]string)}
	fs.StringVar(&f.file, "config", "", "YAML file with the keys that flags have, too: --otlp-grpc is grpc in the section otlp")
	for _, d := range definitions() {
		flag := fs.VarPF(&flagValue{d: d, to: f.set}, dashed(d.key), "", flagHelp(d.help))
		if d.kind.typeName() == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
	return f
}

// flagHelp returns help as flags have it: no full stop at the end, no capital in front but for names and abbreviations.
func flagHelp(help string) string {
	help = strings.TrimSuffix(help, ".")
	if second := help[1]; second == ' ' || second >= 'a' && second <= 'z' {
		return strings.ToLower(help[:1]) + help[1:]
	}
	return help
}

// read returns what the flags say.
func (f *Flags) read() (layer, Mistakes) {
	l := newLayer()
	var mistakes Mistakes
	if f == nil {
		return l, nil
	}
	for _, d := range definitions() {
		if text, ok := f.set[d.key]; ok {
			mistakes = append(mistakes, l.readWord(&d, text, &reader{source: "--" + dashed(d.key), usage: true})...)
		}
	}
	return l, mistakes
}

// flagValue is the flag of a key.
type flagValue struct {
	d  definition
	to map[string]string
}

// String implements pflag.Value.
func (v *flagValue) String() string {
	if text, ok := v.to[v.d.key]; ok {
		return text
	}
	if s, ok := v.d.kind.(*scalar); ok {
		return s.text(v.d.preset)
	}
	return ""
}

// Type implements pflag.Value.
func (v *flagValue) Type() string { return v.d.kind.typeName() }

// Set implements pflag.Value.
func (v *flagValue) Set(text string) error {
	v.to[v.d.key] = text
	return nil
}

// Reload returns the configuration that holds after new was loaded while old was in force: what can be applied of it, and the keys
// whose change needs a restart, ascending by their place in the table. Neither is changed.
func Reload(old, new *Effective) (applied *Effective, refused []string) {
	mixed := newLayer()
	for _, d := range definitions() {
		from := new
		if !d.live && !reflect.DeepEqual(old.values[d.key], new.values[d.key]) {
			from = old
			refused = append(refused, d.key)
		}
		if origin := from.origins[d.key]; origin != "" {
			mixed.add(d.key, from.values[d.key], origin)
		}
	}
	e := merge(mixed)
	e.File, e.Read = new.File, new.Read
	if len(e.check(nil)) == 0 {
		return e, refused
	}
	// Each is possible but not what they would be together: nothing is applied.
	return old, Changes(old, new)
}

// Changes returns the keys that two configurations differ in.
func Changes(a, b *Effective) []string {
	var keys []string
	for _, d := range definitions() {
		if !reflect.DeepEqual(a.values[d.key], b.values[d.key]) {
			keys = append(keys, d.key)
		}
	}
	return keys
}
