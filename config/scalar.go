package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/notify"
)

// kind knows the values of a key: how they are read, written and described.
type kind interface {
	// read returns the value that n stands for; false after it noted why there is none.
	read(r *reader, key string, n *yaml.Node) (any, bool)
	// node returns v as YAML, for people: secrets are hidden.
	node(v any) *yaml.Node
	// want says what a value must be, to follow "want".
	want() string
	// typeName is one word for the type.
	typeName() string
}

// scalar is a kind of values that are one word or number.
type scalar struct {
	name  string
	wants string
	parse func(text string) (any, error) // an error that says more than wants, or errUnlike
	text  func(v any) string
	plain bool // values need no quotes
}

// errUnlike says that a text is not what was wanted, which is all there is to say.
var errUnlike = errors.New("not what was wanted")

func (s *scalar) want() string     { return s.wants }
func (s *scalar) typeName() string { return s.name }

func (s *scalar) read(r *reader, key string, n *yaml.Node) (any, bool) {
	if n.Kind != yaml.ScalarNode {
		r.wrong(n, key, "want %s, not a %s", s.wants, shapeOf(n))
		return nil, false
	}
	if n.ShortTag() == "!!null" {
		r.wrong(n, key, "no value; want %s, or leave the key out", s.wants)
		return nil, false
	}
	v, err := s.parse(n.Value)
	switch {
	case err == nil:
		return v, true
	case errors.Is(err, errUnlike):
		r.wrong(n, key, "%s: want %s", quote(n.Value), s.wants)
	default:
		r.wrong(n, key, "%v", err)
	}
	return nil, false
}

func (s *scalar) node(v any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: s.text(v)}
	if !s.plain {
		n.Tag = "!!str" // so that what looks like a number or a boolean is quoted
	}
	return n
}

// as returns v, a value of a kind whose values are of type T.
func as[T any](v any) T {
	x, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("a value of type %T, want %T", v, x))
	}
	return x
}

// shapeOf names the kind of a node for people.
func shapeOf(n *yaml.Node) string {
	if n.Kind == yaml.SequenceNode {
		return "list"
	}
	if n.Kind == yaml.MappingNode {
		return "section"
	}
	return "single value"
}

// day is what durations may be given in beside the units of package time.
const day = 24 * time.Hour

// duration returns the kind of durations from low to high.
func duration(low, high time.Duration) *scalar {
	return &scalar{
		name: "duration", wants: fmt.Sprintf("a duration from %s to %s, like 10s or 1h30m", durationText(low), durationText(high)),
		parse: func(text string) (any, error) {
			if d, ok := parseDuration(text); ok && d >= low && d <= high {
				return d, nil
			}
			return nil, errUnlike
		},
		text: func(v any) string { return durationText(as[time.Duration](v)) },
	}
}

// parseDuration is [time.ParseDuration] with whole days before the rest.
func parseDuration(text string) (time.Duration, bool) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		d, err := time.ParseDuration(text)
		return d, err == nil
	}
	n, err := strconv.ParseUint(days, 10, 16)
	d := time.Duration(n) * day
	if err == nil && rest != "" {
		var more time.Duration
		more, err = time.ParseDuration(rest)
		d += more
	}
	return d, err == nil
}

// durationText returns d without units of which there are none: "5m", not "5m0s".
func durationText(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// size returns the kind of numbers of bytes from low to high.
func size(low, high int64) *scalar {
	return &scalar{
		name: "size", plain: true, wants: fmt.Sprintf("a size from %s to %s, like 512MiB", units.Bytes(low), units.Bytes(high)),
		parse: func(text string) (any, error) {
			if n, ok := units.ParseBytes(text); ok && n >= low && n <= high {
				return n, nil
			}
			return nil, errUnlike
		},
		text: func(v any) string { return units.Bytes(as[int64](v)) },
	}
}

// integer returns the kind of whole numbers from low to high, as values of type T.
func integer[T int | uint64](low, high T) *scalar {
	return &scalar{
		name: "integer", plain: true, wants: fmt.Sprintf("a whole number from %d to %d", low, high),
		parse: func(text string) (any, error) {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < int64(low) || n > int64(high) {
				return nil, errUnlike
			}
			return T(n), nil
		},
		text: func(v any) string { return fmt.Sprint(v) },
	}
}

// number returns the kind of numbers from low to high.
func number(low, high float64) *scalar {
	return &scalar{
		name: "number", plain: true, wants: fmt.Sprintf("a number from %v to %v", low, high),
		parse: func(text string) (any, error) {
			x, err := strconv.ParseFloat(text, 64)
			if err != nil || !(x >= low && x <= high) || math.Signbit(x) {
				return nil, errUnlike
			}
			return x, nil
		},
		text: func(v any) string { return strconv.FormatFloat(as[float64](v), 'g', -1, 64) },
	}
}

// boolean returns the kind of true and false.
func boolean() *scalar {
	return &scalar{
		name: "bool", plain: true, wants: "true or false",
		parse: func(text string) (any, error) {
			if text != "true" && text != "false" {
				return nil, errUnlike
			}
			return text == "true", nil
		},
		text: func(v any) string { return strconv.FormatBool(as[bool](v)) },
	}
}

// words is a kind of texts of which accept says whether they will do.
func words(name, wants string, accept func(text string) bool) *scalar {
	return &scalar{
		name: name, wants: wants,
		parse: func(text string) (any, error) {
			if !accept(text) {
				return nil, errUnlike
			}
			return text, nil
		},
		text: func(v any) string { return as[string](v) },
	}
}

// choice returns the kind of a few words.
func choice(among ...string) *scalar {
	name := strings.Join(among, "|")
	if len(name) > longestTypeName {
		name = "name"
	}
	return words(name, "one of "+strings.Join(among, ", "), func(text string) bool { return slices.Contains(among, text) })
}

// longestTypeName bounds what stands beside a flag in help.
const longestTypeName = 40

// longestText bounds texts, in bytes.
const longestText = 4096

// text returns the kind of texts that are not empty.
func text(wants string) *scalar { return words("text", wants, isText) }

func isText(s string) bool {
	return s != "" && len(s) <= longestText && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// path returns the kind of names of files; what they hold is read at the start.
func path(wants string) *scalar { return words("path", wants, isText) }

// off is how an address or endpoint that is not used is written.
const off = "off"

// address returns the kind of addresses to listen on; off is the empty text.
func address() *scalar {
	return orOff(words("address", "an address like 127.0.0.1:4317", isAddress))
}

// orOff returns s extended by the word off for the empty text.
func orOff(s *scalar) *scalar {
	parse, text := s.parse, s.text
	s.wants += ", or off"
	s.parse = func(t string) (any, error) {
		if t == off || t == "" {
			return "", nil
		}
		return parse(t)
	}
	s.text = func(v any) string {
		if v == "" {
			return off
		}
		return text(v)
	}
	return s
}

func isAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	n, convErr := strconv.ParseUint(port, 10, 16)
	return err == nil && convErr == nil && isText(s) && (host == "" || isHost(host)) && strconv.FormatUint(n, 10) == port
}

func isHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || hostName.MatchString(s)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

// endpoint returns the kind of URLs to send to. Passwords in them are hidden.
func endpoint() *scalar {
	s := words("url", "a URL that starts with http:// or https://", isURL)
	parse := s.parse
	s.parse = func(text string) (any, error) {
		v, err := parse(text)
		if err != nil && strings.Contains(text, "@") { // not to be repeated: there may be a password before it
			return nil, errors.New("want " + s.wants)
		}
		return v, err
	}
	s.text = func(v any) string {
		if u, err := url.Parse(as[string](v)); err == nil && u.User != nil {
			return u.Scheme + "://" + hidden + "@" + u.Host + u.RequestURI()
		}
		return as[string](v)
	}
	return s
}

// isURL refuses, too, what was printed without its secrets.
func isURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && isText(s) && !strings.Contains(s, hidden) && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

// tracePlaceholder stands for the ID in a link to a trace; the only placeholder that must be there.
const tracePlaceholder = "{trace_id}"

func isTraceURL(s string) bool {
	_, err := notify.NewLink("", s)
	return err == nil && isText(s)
}

var prefix = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*$`)

func isPrefix(s string) bool {
	return len(s) <= longestText && prefix.MatchString(s) && !strings.Contains(s, "/.")
}

// hidden stands for a secret; it is none itself.
const hidden = "(hidden)"

// secret returns s with values that are never shown nor repeated.
func secret(s *scalar) *scalar {
	wants := s.wants
	parse := s.parse
	s.parse = func(text string) (any, error) {
		v, err := parse(text)
		if err != nil {
			return nil, errors.New("want " + wants)
		}
		return v, nil
	}
	s.text = func(any) string { return hidden }
	return s
}

// secretURL is endpoint, of which only scheme and host are shown: paths of many webhooks are secrets.
func secretURL() *scalar {
	s := secret(endpoint())
	s.text = func(v any) string {
		u, err := url.Parse(as[string](v))
		if err != nil {
			return hidden
		}
		if u.Path == "" && u.RawQuery == "" && u.User == nil && u.Fragment == "" {
			return as[string](v)
		}
		return u.Scheme + "://" + u.Host + "/" + hidden
	}
	return s
}
