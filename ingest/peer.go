package ingest

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/sibyl-trace/sibyl/trace"
)

// peerField is a property of the callee of a span.
type peerField uint8

const (
	peerService peerField = iota
	peerRPC
	peerDestination
	peerSystem
	peerNamespace
	peerCollection
	peerAddress
	peerPort
	peerURL // the host of a URL
	peerTemplate
	peerFields
)

// peerKey is an attribute that names the callee of a span. Of the keys of a field, the one with the lowest rank counts.
type peerKey struct {
	name  string
	field peerField
	rank  uint8
}

// peerKeys are the attributes of the semantic conventions that name the callee of a span, with their former names.
var peerKeys = [...]peerKey{
	{"service.peer.name", peerService, 0}, {"peer.service", peerService, 1},
	{"rpc.service", peerRPC, 0},
	{"messaging.destination.template", peerDestination, 0}, {"messaging.destination.name", peerDestination, 1}, {"messaging.destination", peerDestination, 2},
	{"db.system.name", peerSystem, 0}, {"db.system", peerSystem, 1},
	{"db.namespace", peerNamespace, 0}, {"db.name", peerNamespace, 1},
	{"db.collection.name", peerCollection, 0}, {"db.sql.table", peerCollection, 1},
	{"server.address", peerAddress, 0}, {"net.peer.name", peerAddress, 1}, {"http.host", peerAddress, 2},
	{"server.port", peerPort, 0}, {"net.peer.port", peerPort, 1},
	{"url.full", peerURL, 0}, {"http.url", peerURL, 1},
	{"url.template", peerTemplate, 0},
}

// maxPeer is the largest length of a value that names a callee. Names of hosts have at most 253 bytes.
const maxPeer = 256

// peer collects the attributes that name the callee of a span. The zero peer is empty.
type peer struct {
	set    uint16                // bit f: field f has a value
	rank   [peerFields]uint8     // of the key of the value
	fields [peerFields][2]uint32 // the value is text[from:to]
	text   []byte                // each value behind the number of its field and its length: equal texts have equal fields
}

func (p *peer) reset() { p.set, p.text = 0, p.text[:0] }

// add adds the value of the attribute peerKeys[key]. It ignores empty values, and those of worse keys than one before.
func (p *peer) add(key int, v Value) {
	k := &peerKeys[key]
	if p.set&(1<<k.field) != 0 && p.rank[k.field] <= k.rank {
		return
	}
	p.text = append(p.text, byte(k.field), 0, 0)
	from := uint32(len(p.text))
	switch text := v.Text; {
	case !v.Numeric && k.field == peerURL:
		if text = hostOf(text); len(text) <= maxPeer {
			p.text = append(p.text, text...)
		}
	case !v.Numeric && len(text) <= maxPeer:
		p.text = append(p.text, text...)
	case k.field == peerPort && v.Numeric && 1 <= v.Number && v.Number < 1<<16:
		p.text = strconv.AppendUint(p.text, uint64(v.Number), 10)
	}
	if to := uint32(len(p.text)); from < to {
		binary.LittleEndian.PutUint16(p.text[from-2:], uint16(to-from))
		p.set |= 1 << k.field
		p.rank[k.field], p.fields[k.field] = k.rank, [2]uint32{from, to}
	}
}

// hostOf returns the host of a URL, with its port; nil if url is none.
func hostOf(url []byte) []byte {
	_, rest, found := bytes.Cut(url, []byte("://"))
	if !found {
		return nil
	}
	if end := bytes.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return rest[bytes.LastIndexByte(rest, '@')+1:] // without user and password
}

// field returns the value of a field; nil if it has none.
func (p *peer) field(f peerField) []byte {
	if p.set&(1<<f) == 0 {
		return nil
	}
	at := p.fields[f]
	return p.text[at[0]:at[1]]
}

// host returns the address of the callee: that of the attributes, or the one in its URL. The port is empty if the
// address contains it.
func (p *peer) host() (address, port []byte) {
	if address := p.field(peerAddress); address != nil {
		return address, p.field(peerPort)
	}
	return p.field(peerURL), nil
}

// peerSalt keeps the keys of callees apart from those of operations.
const peerSalt = 0x2545f4914f6cdd1d

// peer returns the operation of kind [trace.External] that p describes; 0 if p is empty. Equal descriptions have equal
// operations on every machine.
func (n *Names) peer(p *peer) trace.Op {
	key := trace.Mix(peerSalt, xxhash.Sum64(p.text))
	line := &n.ops[key%cachedOps]
	for i := range line {
		if line[i].key == key {
			return line[i].op
		}
	}
	op := trace.Op(0)
	if who, what := p.names(); len(who)+len(what) > 0 {
		op = n.Table.Op(n.Table.SymbolBytes(who), n.Table.SymbolBytes(what), trace.External)
	}
	copy(line[1:], line[:])
	line[0] = cachedOp{key, op}
	return op
}

// normal returns a name in lower case, without the parts that vary (see [trace.NormalName]).
func normal(name []byte) []byte {
	return trace.NormalName(bytes.ToLower(clean(name, MaxName)), nil)
}

// names returns the name of the callee and of its part or operation that is called, normalised.
func (p *peer) names() (who, what []byte) {
	name := func(f peerField) []byte { return normal(p.field(f)) }
	who, what = name(peerService), name(peerRPC)
	if len(who) == 0 {
		who = join(name(peerSystem), " ", hostName(p.host()))
	}
	if len(who) == 0 {
		who, what = what, nil
	}
	what = join(join(what, ".", name(peerNamespace)), ".", name(peerCollection))
	return who, join(join(what, " ", name(peerDestination)), " ", name(peerTemplate))
}

// join returns a and b with the separator between them if neither is empty; nil if both are. It keeps neither.
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

// hostName returns the normalised name of an address with its port, unless that is the one of HTTP. The parts that
// differ between the replicas of one service are replaced; an IP address becomes "{ip}".
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
	if number, err := strconv.ParseUint(string(port), 10, 16); err != nil || len(name) == 0 || number == 80 || number == 443 {
		return name
	}
	return join(name, ":", port)
}

// splitPort splits a port off an address.
func splitPort(address []byte) (host, port []byte) {
	i := bytes.LastIndexByte(address, ':')
	if i < 0 || bytes.IndexByte(address[i:], ']') >= 0 {
		return address, nil
	}
	host, port = address[:i], address[i+1:]
	if bytes.IndexByte(host, ':') >= 0 && (host[0] != '[' || bytes.IndexByte(host, ']') != len(host)-1) {
		return address, nil // an IPv6 address, which has brackets if a port follows
	}
	return host, port
}

// withoutReplica returns the name of a host with the end of its first label replaced by "{}" if it tells replicas
// apart: the words behind dashes with a digit, as in kafka-0, ip-10-0-1-17 and cart-7f9c8d6b5-x2k4z, and the random
// word of a pod behind them.
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

// isPodSuffix reports whether word may be the random end of the name of a pod.
func isPodSuffix(word []byte) bool {
	return len(word) == 5 && bytes.IndexFunc(word, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) < 0
}
