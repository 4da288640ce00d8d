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

	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// kind reads, writes and describes values of type V.
type kind[V any] interface {
	// read returns the value of n without invalid parts, which it records in r. It returns false if there is no value.
	read(r *reader, key string, n *yaml.Node) (V, bool)
	// node returns v as YAML for people, with secrets hidden.
	node(v V) *yaml.Node
	// want returns a description of valid values that can follow the word "want".
	want() string
	// typeName returns one word for the type.
	typeName() string
}

// scalar is a kind of values that consist of a single word or number.
type scalar[V any] struct {
	name  string
	wants string
	parse func(text string) (V, error) // returns errInvalid, or an error with a more specific text than wants
	text  func(v V) string
	plain bool // values don't need quotes
}

// errInvalid is returned for a text that doesn't match the description in wants.
var errInvalid = errors.New("not a valid value")

func (s *scalar[V]) want() string     { return s.wants }
func (s *scalar[V]) typeName() string { return s.name }

func (s *scalar[V]) read(r *reader, key string, n *yaml.Node) (v V, ok bool) {
	if n.Kind != yaml.ScalarNode {
		r.fail(n, key, "want %s, not a %s", s.wants, shapeOf(n))
		return v, false
	}
	if n.ShortTag() == "!!null" {
		r.fail(n, key, "no value; want %s, or remove the key", s.wants)
		return v, false
	}
	v, err := s.parse(n.Value)
	switch {
	case err == nil:
		return v, true
	case errors.Is(err, errInvalid):
		r.fail(n, key, "%s: want %s", quote(n.Value), s.wants)
	default:
		r.fail(n, key, "%v", err)
	}
	return v, false
}

func (s *scalar[V]) node(v V) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: s.text(v)}
	if !s.plain {
		n.Tag = "!!str" // adds quotes to texts that look like a number or a boolean
	}
	return n
}

// shapeOf returns the name of a node's kind for error messages.
func shapeOf(n *yaml.Node) string {
	if n.Kind == yaml.SequenceNode {
		return "list"
	}
	if n.Kind == yaml.MappingNode {
		return "section"
	}
	return "single value"
}

// day is the unit of durations that package time lacks.
const day = 24 * time.Hour

// duration returns the kind for durations from low to high, both included.
func duration(low, high time.Duration) *scalar[time.Duration] {
	return &scalar[time.Duration]{
		name:  "duration",
		wants: fmt.Sprintf("a duration from %s to %s, like 10s or 1h30m", durationText(low), durationText(high)),
		parse: func(text string) (time.Duration, error) {
			if d, ok := parseDuration(text); ok && d >= low && d <= high {
				return d, nil
			}
			return 0, errInvalid
		},
		text: durationText,
	}
}

// parseDuration is like [time.ParseDuration], but accepts whole days before the rest.
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

// durationText formats d without zero units: "5m", not "5m0s".
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

// size returns the kind for numbers of bytes from low to high.
func size(low, high int64) *scalar[int64] {
	return &scalar[int64]{
		name:  "size",
		plain: true,
		wants: fmt.Sprintf("a size from %s to %s, like 512MiB", units.Bytes(low), units.Bytes(high)),
		parse: func(text string) (int64, error) {
			if n, ok := units.ParseBytes(text); ok && n >= low && n <= high {
				return n, nil
			}
			return 0, errInvalid
		},
		text: units.Bytes,
	}
}

// integer returns the kind for integers from low to high.
func integer[T int | uint64](low, high T) *scalar[T] {
	return &scalar[T]{
		name: "integer", plain: true, wants: fmt.Sprintf("a whole number from %d to %d", low, high),
		parse: func(text string) (T, error) {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < int64(low) || n > int64(high) {
				return 0, errInvalid
			}
			return T(n), nil
		},
		text: func(v T) string { return fmt.Sprint(v) },
	}
}

// number returns the kind for numbers from low to high.
func number(low, high float64) *scalar[float64] {
	return &scalar[float64]{
		name: "number", plain: true, wants: fmt.Sprintf("a number from %v to %v", low, high),
		parse: func(text string) (float64, error) {
			x, err := strconv.ParseFloat(text, 64)
			if err != nil || !(x >= low && x <= high) || math.Signbit(x) {
				return 0, errInvalid
			}
			return x, nil
		},
		text: func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) },
	}
}

// share returns the kind for shares from low to high, given as numbers or as percentages like 0.1%.
func share(low, high float64) *scalar[float64] {
	return &scalar[float64]{
		name:  "share",
		plain: true,
		wants: fmt.Sprintf("a share from %s to %s, like 0.1%% or 0.001", percentText(low), percentText(high)),
		parse: func(text string) (float64, error) {
			number, percent := strings.CutSuffix(text, "%")
			x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if percent {
				x /= 100
			}
			if err != nil || !(x >= low && x <= high) {
				return 0, errInvalid
			}
			return x, nil
		},
		text: percentText,
	}
}

// percentText returns a share as the shortest percentage that is read as the same share, or as a number if there is no
// such percentage.
func percentText(share float64) string {
	for digits := range 17 {
		text := strconv.FormatFloat(share*100, 'g', digits+1, 64)
		if x, err := strconv.ParseFloat(text, 64); err == nil && x/100 == share && !strings.Contains(text, "e") {
			return text + "%"
		}
	}
	return strconv.FormatFloat(share, 'g', -1, 64)
}

// rate returns the kind for times per second from low to high.
func rate(low, high time.Duration) *scalar[time.Duration] {
	const perSecond = "/s"
	s := duration(low, high)
	parse, text := s.parse, s.text
	s.name, s.wants = "rate", fmt.Sprintf("a time per second from %s/s to %s/s, like 10ms/s",
		durationText(low), durationText(high))
	s.parse = func(text string) (time.Duration, error) {
		text, found := strings.CutSuffix(text, perSecond)
		if !found {
			return 0, errInvalid // not a time
		}
		return parse(text)
	}
	s.text = func(v time.Duration) string { return text(v) + perSecond }
	return s
}

// boolean returns the kind for true and false.
func boolean() *scalar[bool] {
	return &scalar[bool]{
		name: "bool", plain: true, wants: "true or false",
		parse: func(text string) (bool, error) {
			if text != "true" && text != "false" {
				return false, errInvalid
			}
			return text == "true", nil
		},
		text: strconv.FormatBool,
	}
}

// words returns the kind for texts accepted by accept.
func words(name, wants string, accept func(text string) bool) *scalar[string] {
	return &scalar[string]{
		name: name, wants: wants,
		parse: func(text string) (string, error) {
			if !accept(text) {
				return "", errInvalid
			}
			return text, nil
		},
		text: func(v string) string { return v },
	}
}

// choice returns the kind for texts that are one of the words in among.
func choice(among ...string) *scalar[string] {
	name := strings.Join(among, "|")
	if len(name) > maxTypeName {
		name = "name"
	}
	return words(name, "one of "+strings.Join(among, ", "),
		func(text string) bool { return slices.Contains(among, text) })
}

// maxTypeName limits the length of a flag's type in help texts.
const maxTypeName = 40

// maxText is the maximum length of texts in bytes.
const maxText = 4096

// text returns the kind for printable, non-empty texts of at most maxText bytes.
func text(wants string) *scalar[string] { return words("text", wants, isText) }

func isText(s string) bool {
	return s != "" && len(s) <= maxText && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// path returns the kind for file names. It doesn't check whether the files exist.
func path(wants string) *scalar[string] { return words("path", wants, isText) }

// off stands for an unused address or endpoint.
const off = "off"

// address returns the kind for listen addresses. The word off is read as "".
func address() *scalar[string] {
	return orOff(words("address", "a host and a port up to 65535, like 127.0.0.1:4317", isAddress))
}

// orOff makes s also accept the word off and the empty text, and reads both as the empty text.
func orOff(s *scalar[string]) *scalar[string] {
	parse, text := s.parse, s.text
	s.wants += ", or off"
	s.parse = func(t string) (string, error) {
		if t == off || t == "" {
			return "", nil
		}
		return parse(t)
	}
	s.text = func(v string) string {
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
	return err == nil && convErr == nil && isText(s) && (host == "" || isHost(host)) &&
		strconv.FormatUint(n, 10) == port
}

func isHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || hostName.MatchString(s)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

// endpoint returns the kind for URLs of other servers. It hides user names, passwords and queries in them.
func endpoint() *scalar[string] {
	s := words("url", "a URL that starts with http:// or https://", isURL)
	parse := s.parse
	s.parse = func(text string) (string, error) {
		v, err := parse(text)
		if err != nil && strings.ContainsAny(text, "@?") { // don't repeat it because it may contain a secret
			return "", errors.New("want " + s.wants)
		}
		return v, err
	}
	s.text = func(v string) string {
		u, err := url.Parse(v)
		if err != nil || u.User == nil && u.RawQuery == "" {
			return v
		}
		shown := u.Scheme + "://"
		if u.User != nil {
			shown += hidden + "@"
		}
		shown += u.Host + u.EscapedPath()
		if u.RawQuery != "" {
			shown += "?" + hidden
		}
		return shown
	}
	return s
}

// linkURL returns the kind for link templates. It hides user names and passwords in them.
func linkURL(wants string, valid func(string) bool) *scalar[string] {
	s := words("url", wants, func(text string) bool { return valid(text) && !strings.Contains(text, hidden) })
	parse := s.parse
	s.parse = func(text string) (string, error) {
		v, err := parse(text)
		if err != nil && strings.Contains(text, "@") { // don't repeat it because it may contain a password
			return "", errors.New("want " + s.wants)
		}
		return v, err
	}
	s.text = withoutUser
	return s
}

// withoutUser hides the user name and password in a URL or a template of URLs.
func withoutUser(template string) string {
	scheme, rest, found := strings.Cut(template, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@')
	if !found || at < 0 {
		return template
	}
	return scheme + "://" + hidden + rest[at:]
}

// isURL reports whether s is an http or https URL. It rejects URLs that were printed with hidden secrets.
func isURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && isText(s) && !strings.Contains(s, hidden) && (u.Scheme == "http" || u.Scheme == "https") &&
		u.Hostname() != ""
}

// isPublicURL reports whether s is empty, or a URL without credentials, query or fragment, so that paths can be
// appended.
func isPublicURL(s string) bool {
	if s == "" {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && isURL(s) && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// isSafeURL is like isPublicURL, for URLs that browsers send secrets to: it accepts http only for this machine.
func isSafeURL(s string) bool {
	u, err := url.Parse(s)
	return isPublicURL(s) && err == nil && (u.Scheme != "http" || isLoopback(net.JoinHostPort(u.Hostname(), "0")))
}

// tracePlaceholder stands for the trace ID in a link. It is the only required placeholder.
const tracePlaceholder = "{trace_id}"

func isTraceURL(s string) bool {
	_, err := directory.NewLink("", s)
	return err == nil && isText(s)
}

func isSearchURL(s string) bool {
	_, err := directory.NewSearchLink("", s)
	return err == nil && isText(s)
}

func isSuspectURL(s string) bool {
	_, err := directory.NewServiceLink("", s)
	return err == nil && isText(s)
}

var prefix = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*$`)

func isPrefix(s string) bool {
	return len(s) <= maxText && prefix.MatchString(s) && !strings.Contains(s, "/.")
}

// hidden replaces a secret. It isn't a valid secret itself.
const hidden = "(hidden)"

// secret makes s hide its values in output and in errors, and returns s.
func secret(s *scalar[string]) *scalar[string] {
	wants := s.wants
	parse := s.parse
	s.parse = func(text string) (string, error) {
		v, err := parse(text)
		if err != nil {
			return "", errors.New("want " + wants)
		}
		return v, nil
	}
	s.text = func(string) string { return hidden }
	return s
}

// secretURL is like endpoint, but only shows scheme and host, because the paths of many webhooks are secrets.
func secretURL() *scalar[string] {
	s := secret(endpoint())
	s.text = func(v string) string {
		u, err := url.Parse(v)
		if err != nil {
			return hidden
		}
		if u.Path == "" && u.RawQuery == "" && u.User == nil && u.Fragment == "" {
			return v
		}
		return u.Scheme + "://" + u.Host + "/" + hidden
	}
	return s
}
