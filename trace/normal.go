package trace

import (
	"bytes"
	"slices"
	"strings"
)

// NormalName returns name with the parts that vary between requests replaced by "{}", which keeps the number of
// operations small. It replaces numbers, UUIDs, words of at least 8 hexadecimal digits that include a decimal digit,
// keys (see [isKey]), e-mail addresses, percent-encoded segments and SQL literals, and omits query strings. It keeps a
// word that merely contains digits (v2, s3, md5sum). Words consist of letters, digits, '_' and '-'. It also keeps a
// line number, as in Foo#343, because it identifies a location in code.
//
// NormalName returns name itself if there is nothing to replace, and otherwise an extension of buf[:0]. It is
// idempotent.
func NormalName(name, buf []byte) []byte {
	if !mayVary(name) {
		return name
	}
	text := textual(name)
	out := buf[:0]
	for i := 0; i < len(name); {
		j, varies := i, false
		if text.any() {
			if j, varies = text.end(name, i); j > i {
				if varies {
					out = append(out, '{', '}')
				}
				i = j
				continue
			}
		}
		for j < len(name) && inWord(name[j]) {
			j++
		}
		switch word := name[i:j]; {
		case len(word) == 0:
			out = append(out, name[i])
			j++
		case isVarying(word) && (!isLine(name, i, j) || bytes.HasSuffix(out, []byte("}#"))),
			isSegment(name, i, j) && isSegmentKey(word):
			out = append(out, '{', '}')
		default:
			out = appendParts(out, word)
		}
		i = j
	}
	return out
}

// textTraits records which kinds of parts that span several words a name may contain.
type textTraits struct{ sql, encoded, query bool }

func (t textTraits) any() bool { return t.sql || t.encoded || t.query }

// textual returns the traits of name.
func textual(name []byte) (t textTraits) {
	for _, c := range name {
		t.encoded = t.encoded || c == '@' || c == '%'
		t.query = t.query || c == '?'
		t.sql = t.sql || c == '\''
	}
	t.sql = t.sql && isSQL(name)
	return t
}

var sqlVerbs = [...]string{"SELECT ", "INSERT ", "UPDATE ", "DELETE ", "REPLACE ", "MERGE ", "CALL ", "WITH ", "EXEC "}

// isSQL reports whether name is an SQL statement. In any other name, a single quote is an apostrophe.
func isSQL(name []byte) bool {
	for _, verb := range sqlVerbs {
		if len(name) >= len(verb) && strings.EqualFold(string(name[:len(verb)]), verb) {
			return true
		}
	}
	return false
}

// end returns the end of the literal, address or query that starts at name[i], and reports whether "{}" replaces it. It
// returns i if nothing of the kind starts there.
func (t textTraits) end(name []byte, i int) (int, bool) {
	switch {
	case t.sql && name[i] == '\'':
		return literalEnd(name, i), true
	case t.query && name[i] == '?' && beginsQuery(name, i):
		for i < len(name) && name[i] != ' ' {
			i++
		}
		return i, false
	case t.encoded && inSegment(name[i]) && (i == 0 || !inSegment(name[i-1])):
		j := i
		for j < len(name) && inSegment(name[j]) {
			j++
		}
		if segment := name[i:j]; isEmail(segment) || isEncoded(segment) {
			return j, true
		}
	}
	return i, false
}

// literalEnd returns the end of the SQL literal that starts at name[i]. Two single quotes inside a literal stand for
// one. If the literal was cut off, it ends with name.
func literalEnd(name []byte, i int) int {
	for i++; i < len(name); i++ {
		if name[i] != '\'' {
			continue
		}
		if i+1 == len(name) || name[i+1] != '\'' {
			return i + 1
		}
		i++
	}
	return len(name)
}

// beginsQuery reports whether the question mark name[i] follows a path. Other question marks are SQL placeholders or
// punctuation.
func beginsQuery(name []byte, i int) bool {
	path := name[bytes.LastIndexByte(name[:i], ' ')+1 : i]
	return bytes.IndexByte(path, '/') >= 0
}

// inSegment reports whether c may be in an e-mail address or in the segment of a path.
func inSegment(c byte) bool {
	return inWord(c) || c == '.' || c == '+' || c == '%' || c == '@' || c == '~'
}

// isEmail reports whether segment is an e-mail address. The @ may be encoded.
func isEmail(segment []byte) bool {
	user, domain, found := bytes.Cut(segment, []byte("@"))
	if !found {
		user, domain, found = bytes.Cut(segment, []byte("%40"))
	}
	dot := bytes.LastIndexByte(domain, '.')
	if !found || len(user) == 0 || dot < 1 || len(domain)-dot < 3 {
		return false
	}
	return !slices.ContainsFunc(domain[dot+1:], func(c byte) bool { return !isLetter(c) })
}

// isEncoded reports whether segment is percent-encoded. Text entered by users may be, but routes are not.
func isEncoded(segment []byte) bool {
	for i := 0; i+2 < len(segment); i++ {
		if segment[i] == '%' && isHex(segment[i+1]) && isHex(segment[i+2]) {
			return true
		}
	}
	return false
}

// appendParts appends word to out. If a part of word is a key, as in cus_9s6XKzkNRiz8i3, it appends only the parts
// before the key, followed by "{}".
func appendParts(out, word []byte) []byte {
	before, found := beforeKey(word)
	if isVarying(before) && found {
		before = []byte("{}")
	}
	if out = append(out, before...); found {
		out = append(out, '{', '}')
	}
	return out
}

// beforeKey returns the parts of word before the first key, and reports whether there is a key.
func beforeKey(word []byte) (before []byte, found bool) {
	for i := 0; i < len(word); {
		j := i
		for j < len(word) && word[j] != '_' && word[j] != '-' {
			j++
		}
		if isKey(word[i:j]) {
			return word[:i], true
		}
		i = j + 1
	}
	return word, false
}

// letters describes a word of ASCII letters and digits.
type letters struct {
	upper, lower, digits int
	changes              int  // between letters and digits
	lone                 bool // a single lower-case letter follows a capital letter
	inner                bool // a digit precedes a letter
	other                bool // word has other characters
}

func lettersOf(word []byte) (l letters) {
	for i, c := range word {
		switch {
		case isDigit(c):
			l.digits++
		case 'a' <= c && c <= 'z':
			l.lower++
			behind := i > 0 && isLetter(word[i-1]) && !isLower(word[i-1])
			l.lone = l.lone || behind && (i+1 == len(word) || !isLower(word[i+1]))
		case 'A' <= c && c <= 'Z':
			l.upper++
		default:
			l.other = true
		}
		if i > 0 && isDigit(c) != isDigit(word[i-1]) {
			l.changes++
			l.inner = l.inner || !isDigit(c)
		}
	}
	return l
}

// isKey reports whether word is a random key: it changes between letters and digits at least three times, and is longer
// than words in code that do so, such as v1beta1 and utf8mb4.
func isKey(word []byte) bool {
	l := lettersOf(word)
	return !l.other && l.changes >= 3 && (len(word) >= 10 || len(word) >= 6 && l.upper > 0 && l.lower > 0)
}

// isSegmentKey reports whether word, which must be a whole path segment, is a key: at least eight capital letters and
// digits, or letters of both cases around a digit that aren't camel case.
func isSegmentKey(word []byte) bool {
	l := lettersOf(word)
	switch {
	case l.other || l.digits == 0:
		return false
	case l.lower == 0:
		return len(word) >= 8
	}
	return len(word) >= 6 && l.upper > 0 && l.inner && (l.lone || l.changes > 1 && isDigit(word[0]))
}

// isSegment reports whether name[i:j] is a segment of a path, or of a key such as session:zA78Cl8.
func isSegment(name []byte, i, j int) bool {
	begins := i > 0 && (name[i-1] == '/' || name[i-1] == ':')
	return begins && (j == len(name) || name[j] == '/' || name[j] == ' ' || name[j] == '?' || name[j] == ':')
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

func isLetter(c byte) bool { return isLower(c) || 'A' <= c && c <= 'Z' }

// mayVary reports whether name may have a part to replace. It is a fast path, because most names have no digit and none
// of these characters.
func mayVary(name []byte) bool {
	return slices.ContainsFunc(name,
		func(c byte) bool { return isDigit(c) || c == '@' || c == '%' || c == '?' || c == '\'' })
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func inWord(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '-' || c >= 0x80
}

// isVarying reports whether word is a number, a UUID or a hash. Such a word consists of hexadecimal digits and dashes,
// and either all digits are decimal or there are at least eight digits, including a decimal one.
func isVarying(word []byte) bool {
	digits, hex := 0, 0
	for _, c := range word {
		switch {
		case isDigit(c):
			digits++
			hex++
		case isHex(c):
			hex++
		case c != '-':
			return false
		}
	}
	return digits > 0 && (digits == hex || hex >= 8)
}

// maxLine is the maximum number of digits in a line number.
const maxLine = 5

// isLine reports whether the word name[i:j] is a line number: digits after an identifier and '#'.
func isLine(name []byte, i, j int) bool {
	if i < 2 || name[i-1] != '#' || j-i > maxLine ||
		slices.ContainsFunc(name[i:j], func(c byte) bool { return !isDigit(c) }) {
		return false
	}
	start := i - 1
	for start > 0 && inWord(name[start-1]) {
		start--
	}
	identifier := name[start : i-1]
	return len(identifier) > 0 && !isDigit(identifier[0]) && identifier[0] != '-' && !isVarying(identifier)
}
