package ingest

import (
	"bytes"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/sibyl-trace/sibyl/trace"
)

// field is a property of a span's callee, or of a server or consumer itself, that comes from identity attributes.
type field uint8

const (
	peerService field = iota
	peerRPC
	destination
	peerSystem
	peerNamespace
	peerCollection
	peerAddress
	peerPort
	urlField
	peerTemplate
	routeField
	pathField
)

// identityKey maps an attribute key to the field that it provides.
type identityKey struct {
	name  string
	field field
}

// identityKeys are the attributes of the semantic conventions that identify callees and operations, with their former
// names. Keys of the same field are adjacent, best first.
var identityKeys = [...]identityKey{
	{"service.peer.name", peerService},
	{"peer.service", peerService},
	{"rpc.service", peerRPC},
	{"messaging.destination.template", destination},
	{"messaging.destination.name", destination},
	{"messaging.destination", destination},
	{"db.system.name", peerSystem},
	{"db.system", peerSystem},
	{"db.namespace", peerNamespace},
	{"db.name", peerNamespace},
	{"db.collection.name", peerCollection},
	{"db.sql.table", peerCollection},
	{"server.address", peerAddress},
	{"net.peer.name", peerAddress},
	{"http.host", peerAddress},
	{"server.port", peerPort},
	{"net.peer.port", peerPort},
	{"url.full", urlField},
	{"http.url", urlField},
	{"url.template", peerTemplate},
	{"http.route", routeField},
	{"url.path", pathField},
	{"http.target", pathField},
}

// keySet is a set of identityKeys: bit i stands for identityKeys[i].
type keySet uint32

// keysOf returns the identity keys that provide any of fields.
func keysOf(fields ...field) (s keySet) {
	for i := range identityKeys {
		if slices.Contains(fields, identityKeys[i].field) {
			s |= 1 << i
		}
	}
	return s
}

var (
	databaseKeys    = keysOf(peerSystem)
	destinationKeys = keysOf(destination)
	routeKeys       = keysOf(routeField)
	pathKeys        = keysOf(pathField, urlField)
	urlKeys         = keysOf(urlField)
	portKeys        = keysOf(peerPort)
	addressKeys     = keysOf(peerAddress)
	locationKeys    = keysOf(peerAddress, urlField)
	peerKeys        = keysOf(peerService, peerRPC, destination, peerSystem, peerNamespace, peerCollection, peerAddress,
		peerPort, urlField, peerTemplate)
)

// firstPort is the lowest index in identityKeys of a key in portKeys.
var firstPort = bits.TrailingZeros32(uint32(portKeys))

// maxPeer is the maximum length of a value that identifies a callee. Host names have at most 253 bytes.
const maxPeer = 256

// identity collects the attributes that identify the callee of a span or its operation. The span's kind determines
// which of them count, but it may come after the attributes. If a key has several values, the first counts.
type identity struct {
	set   keySet
	texts [len(identityKeys)][]byte // by index in identityKeys; nil for a numeric port
	ports [2]uint16                 // numeric ports, by index from firstPort
}

// addText sets the value of identityKeys[key] to text, unless text is empty or the key already has a value.
func (d *identity) addText(key int, text []byte) {
	if bit := keySet(1) << key; d.set&bit == 0 && len(text) != 0 {
		d.set |= bit
		d.texts[key] = text
	}
}

// add sets the value of identityKeys[key] to v, unless the key already has a value. Numbers have no effect unless they
// are ports.
func (d *identity) add(key int, v Value) {
	switch {
	case !v.Numeric:
		d.addText(key, v.Text)
	case 1 <= v.Number && v.Number < 1<<16:
		d.addNumber(key, uint16(v.Number))
	}
}

// addNumber sets the value of identityKeys[key] to the port n. It has no effect if n is 0, or if the key isn't a port
// or already has a value.
func (d *identity) addNumber(key int, n uint16) {
	if bit := keySet(1) << key; portKeys&^d.set&bit != 0 && n != 0 {
		d.set |= bit
		d.texts[key], d.ports[(key-firstPort)&1] = nil, n
	}
}

// hash returns a hash of the values of keys. It ignores the parts of URLs that differ from call to call.
func (d *identity) hash(keys keySet) uint64 {
	h := uint64(0)
	for m := d.set & keys; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(uint32(m))
		text := d.texts[i]
		switch {
		case text == nil:
			h = trace.Mix(h+uint64(i), uint64(d.ports[(i-firstPort)&1]))
		case urlKeys&(1<<i) != 0:
			h = trace.Mix(h+uint64(i), xxhash.Sum64(hostOf(text)))
		default:
			h = trace.Mix(h+uint64(i), xxhash.Sum64(text))
		}
	}
	return h
}

// text returns part(value) for the best key in keys for which the result is neither empty nor longer than maxPeer, or
// nil if there is no such key. If part is nil, the result is the value itself.
func (d *identity) text(keys keySet, part func([]byte) []byte) []byte {
	for m := d.set & keys; m != 0; m &= m - 1 {
		text := d.texts[bits.TrailingZeros32(uint32(m))]
		if part != nil {
			text = part(text)
		}
		if 0 < len(text) && len(text) <= maxPeer {
			return text
		}
	}
	return nil
}

// address returns a hash of the network address of the callee, or of a server itself, or 0 if it is unknown. It ignores
// addresses, such as localhost, that every host has.
func (d *identity) address() trace.Address {
	if d.set&locationKeys == 0 {
		return 0
	}
	host, port := d.text(addressKeys, nil), uint16(0)
	if host != nil {
		port = d.portNumber()
	} else {
		host = d.text(urlKeys, hostOf)
	}
	if port == 0 {
		var digits []byte
		host, digits = splitPort(host)
		port = portOf(digits)
	}
	if len(host) != 0 && host[0] == '[' { // an IPv6 address
		host = bytes.Trim(host, "[]")
	}
	if len(host) == 0 || IsLocal(host) {
		return 0
	}
	if port == 80 || port == 443 {
		port = 0 // URLs omit these ports
	}
	return trace.Address(trace.Mix(xxhash.Sum64(host), uint64(port)))
}

// portNumber returns the port of the callee as a number, or 0 if it is missing or not a number.
func (d *identity) portNumber() uint16 {
	m := d.set & portKeys
	if m == 0 {
		return 0
	}
	i := bits.TrailingZeros32(uint32(m))
	if text := d.texts[i]; text != nil {
		return portOf(text)
	}
	return d.ports[(i-firstPort)&1]
}

// portOf returns the port with the given decimal digits, or 0 if digits isn't a port number.
func portOf(digits []byte) uint16 {
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' || n >= 1<<16 {
			return 0
		}
		n = 10*n + int(c-'0')
	}
	return uint16(min(n, 1<<16))
}

// port returns the port of the callee as decimal digits, or nil if it is unknown.
func (d *identity) port() []byte {
	for m := d.set & portKeys; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(uint32(m))
		switch text := d.texts[i]; {
		case text == nil:
			return strconv.AppendUint(nil, uint64(d.ports[(i-firstPort)&1]), 10)
		case len(text) <= maxPeer:
			return text
		}
	}
	return nil
}

// hostOf returns the host in url, with its port, or nil if url isn't a URL.
func hostOf(url []byte) []byte {
	_, rest, found := bytes.Cut(url, []byte("://"))
	if !found {
		return nil
	}
	host := authority(rest)
	return host[bytes.LastIndexByte(host, '@')+1:] // without user and password
}

// authority returns the part before the path of url, which must not have a scheme.
func authority(url []byte) []byte {
	if end := bytes.IndexAny(url, "/?#"); end >= 0 {
		return url[:end]
	}
	return url
}

// host returns the address and port of the callee from its attributes. If there is no address attribute, it returns the
// host in the URL, which may contain the port, and a nil port. Both results are nil if the callee is unknown.
func (d *identity) host() (address, port []byte) {
	if address := d.text(addressKeys, nil); address != nil {
		return address, d.port()
	}
	return d.text(urlKeys, hostOf), nil
}

// operation returns the operation of the current span.
func (b *Builder) operation() trace.Op {
	if detail, raw := b.detailOfName(); detail != nil {
		return b.names.completed(b.service, b.Name, b.Kind, detail, raw)
	}
	return b.names.Op(b.service, b.Name, b.Kind)
}

// detailOfName returns the text that the operation name of the current span must contain, or nil. For a server, that is
// the route or, if the span name is just the method, the path; raw reports whether it is a path. For a consumer, it is
// the destination.
func (b *Builder) detailOfName() (detail []byte, raw bool) {
	d := &b.identity
	if b.Kind == trace.Consumer {
		return d.text(destinationKeys, nil), false
	}
	if b.Kind != trace.Server {
		return nil, false
	}
	if detail = d.text(routeKeys, nil); detail == nil && d.set&pathKeys != 0 && isMethod(b.Name) {
		return d.text(pathKeys, pathOf), true
	}
	return detail, false
}

// methods are the names of HTTP methods, and HTTP, which stands for unknown methods in the semantic conventions.
var methods = [...]string{
	"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "QUERY", "TRACE", "CONNECT",
	"HTTP",
}

// isMethod reports whether name is an HTTP method, possibly after "HTTP".
func isMethod(name []byte) bool {
	name = bytes.TrimPrefix(name, []byte("HTTP "))
	for _, m := range methods {
		if string(name) == m {
			return true
		}
	}
	return false
}

// maxSegments is the maximum number of path segments that become part of a name. Further segments often name things
// such as articles or files; there are too many of them to be operations.
const maxSegments = 4

// pathOf returns the first maxSegments segments of the path in url, or nil if there is no path. url may itself be a
// path.
func pathOf(url []byte) []byte {
	if _, rest, found := bytes.Cut(url, []byte("://")); found {
		url = rest[len(authority(rest)):]
	}
	if end := bytes.IndexAny(url, "?#"); end >= 0 {
		url = url[:end]
	}
	if len(url) == 0 || url[0] != '/' {
		return nil
	}
	end := 0
	for range maxSegments {
		next := bytes.IndexByte(url[end+1:], '/')
		if next < 0 {
			return url
		}
		end += 1 + next
	}
	return url[:end]
}

// withoutItems returns path with "{}" in place of the segments that seem to identify things: segments that follow the
// name of a collection, which is a plural word, and segments of more than two words. If an application doesn't report
// routes, its operations can be distinguished only by path, but the number of such segments is unbounded.
func withoutItems(path []byte) []byte {
	segments := bytes.Split(path, []byte("/"))
	item := false // the previous segment is a collection
	for i, s := range segments {
		collection := isCollection(s)
		if words := 1 + bytes.Count(s, []byte("-")) +
			bytes.Count(s, []byte("_")); len(s) > 0 && (item && !isAction(s) || words > 2) {
			segments[i], collection = []byte("{}"), false
		}
		item = collection
	}
	return bytes.Join(segments, []byte("/"))
}

// isCollection reports whether a path segment looks like a plural word.
func isCollection(segment []byte) bool {
	n := len(segment)
	notLetter := func(r rune) bool { return r < 'a' || r > 'z' }
	return n >= 4 && segment[n-1] == 's' && segment[n-2] != 's' && bytes.IndexFunc(segment, notLetter) < 0
}

// actions are path segments that APIs commonly have after a collection in place of an ID.
var actions = [...]string{
	"search", "list", "new", "all", "count", "batch",
	"bulk", "export", "import", "me", "latest", "status", "health",
}

func isAction(segment []byte) bool {
	for _, a := range actions {
		if string(segment) == a {
			return true
		}
	}
	return false
}

// completed returns the operation with the given service and kind, and a name that consists of name and detail, or of
// only name if name already contains detail. If raw is true, detail is the path of a URL, and completed replaces the
// identifiers in it.
func (n *Names) completed(service trace.Symbol, name []byte, kind trace.Kind, detail []byte, raw bool) trace.Op {
	key := trace.Mix(trace.Mix(uint64(service)+uint64(kind), xxhash.Sum64(name)), xxhash.Sum64(detail))
	if op, ok := n.cached(key); ok {
		return op
	}
	if bytes.Contains(name, bytes.TrimLeft(detail, "/")) {
		return n.newOp(key, service, name, kind)
	}
	if raw {
		detail = withoutItems(detail)
	}
	return n.newOp(key, service, join(shorten(name, MaxName-maxPeer-1), " ", detail), kind)
}

// peerSalt keeps the keys of callees distinct from the keys of operations.
const peerSalt = 0x2545f4914f6cdd1d

// peer returns the operation of kind [trace.External] that d describes, or 0 if d names no callee. Equal descriptions
// give equal operations on every machine.
func (n *Names) peer(d *identity) trace.Op {
	key := trace.Mix(peerSalt, d.hash(peerKeys))
	if op, ok := n.cached(key); ok {
		return op
	}
	op := trace.Op(0)
	if who, what := d.names(); len(who)+len(what) > 0 {
		op = n.Table.Op(n.Table.SymbolBytes(who), n.Table.SymbolBytes(what), trace.External)
	}
	n.cache(key, op)
	return op
}

// normal returns name in lower case, without variable parts (see [trace.NormalName]).
func normal(name []byte) []byte {
	return trace.NormalName(bytes.ToLower(clean(name, MaxName)), nil)
}

// names returns the normalised names of the callee (who) and of its part or operation that is called (what). Either may
// be empty.
func (d *identity) names() (who, what []byte) {
	name := func(f field) []byte { return normal(d.text(keysOf(f), nil)) }
	who, what = name(peerService), name(peerRPC)
	if len(who) == 0 {
		who = join(name(peerSystem), " ", hostName(d.host()))
	}
	if len(who) == 0 {
		who, what = what, nil
	}
	what = join(join(what, ".", name(peerNamespace)), ".", name(peerCollection))
	return who, join(join(what, " ", name(destination)), " ", name(peerTemplate))
}

// join returns a and b with separator between them. If one of them is empty, it returns a copy of the other; if both
// are empty, it returns nil. The result doesn't share memory with a or b.
func join(a []byte, separator string, b []byte) []byte {
	switch {
	case len(a) == 0 && len(b) == 0:
		return nil
	case len(a) == 0:
		return bytes.Clone(b)
	case len(b) == 0:
		return bytes.Clone(a)
	}
	return append(append(bytes.Clone(a), separator...), b...)
}

// hostName returns the normalised name of address, followed by the port unless the port is 80 or 443. It replaces an IP
// address, and parts of the address that differ between replicas of a service, with placeholders. If port is nil,
// address may contain the port.
func hostName(address, port []byte) []byte {
	if len(address) == 0 {
		return nil
	}
	if port == nil {
		address, port = splitPort(address)
	}
	name := []byte("{ip}")
	if _, err := netip.ParseAddr(string(bytes.Trim(address, "[]"))); err != nil {
		name = normal(withoutReplica(address))
	}
	number, err := strconv.ParseUint(string(port), 10, 16)
	if err != nil || len(name) == 0 || number == 80 || number == 443 {
		return name
	}
	return join(name, ":", port)
}

// splitPort splits address into host and port. port is nil if address contains no port.
func splitPort(address []byte) (host, port []byte) {
	i := bytes.LastIndexByte(address, ':')
	if i < 0 || bytes.IndexByte(address[i:], ']') >= 0 {
		return address, nil
	}
	host, port = address[:i], address[i+1:]
	if bytes.IndexByte(host, ':') >= 0 && (host[0] != '[' || bytes.IndexByte(host, ']') != len(host)-1) {
		return address, nil // an IPv6 address, which would have brackets before a port
	}
	return host, port
}

// withoutReplica returns host with the end of its first label replaced by "{}" if that end distinguishes replicas. Such
// an end consists of words that contain a digit, each preceded by a dash, as in kafka-0, ip-10-0-1-17 and
// cart-7f9c8d6b5-x2k4z. It may also include the random last word of a pod's name.
func withoutReplica(host []byte) []byte {
	label, domain, _ := bytes.Cut(host, []byte("."))
	words := bytes.Split(label, []byte("-"))
	keep := len(words)
	for ; keep > 1; keep-- {
		word := words[keep-1]
		random := keep == len(words) && isPodSuffix(word) && hasDigit(words[keep-2])
		if !hasDigit(word) && !random {
			break
		}
	}
	if keep == len(words) {
		return host
	}
	name := append(bytes.Join(words[:keep], []byte("-")), "-{}"...)
	return join(name, ".", domain)
}

func hasDigit(word []byte) bool { return bytes.ContainsAny(word, "0123456789") }

// isPodSuffix reports whether word may be the random last word of a pod's name.
func isPodSuffix(word []byte) bool {
	return len(word) == 5 && len(bytes.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789")) == 0
}
