package trace

import "slices"

// NormalName returns name with the parts that vary between requests replaced by "{}", which keeps the number of
// operations small. It replaces numbers, UUIDs, and words of at least 8 hexadecimal digits with at least one decimal
// digit among them. A word that merely contains digits (v2, s3, md5sum) stays. Words consist of letters, digits, '_'
// and '-'. A line number stays, too, as in Foo#343: it identifies a location in code.
//
// NormalName returns name itself if there is nothing to replace, and otherwise an extension of buf[:0]. It is
// idempotent.
func NormalName(name, buf []byte) []byte {
	if !mayVary(name) {
		return name
	}
	out := buf[:0]
	for i := 0; i < len(name); {
		j := i
		for j < len(name) && inWord(name[j]) {
			j++
		}
		switch word := name[i:j]; {
		case len(word) == 0:
			out = append(out, name[i])
			j++
		case isVarying(word) && !isLine(name, i, j):
			out = append(out, '{', '}')
		default:
			out = append(out, word...)
		}
		i = j
	}
	return out
}

// mayVary is a fast path for most names: without a digit there is nothing to replace.
func mayVary(name []byte) bool {
	return slices.ContainsFunc(name, isDigit)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func inWord(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '-' || c >= 0x80
}

// isVarying reports whether word is a number, a UUID or a hash: only hexadecimal digits and dashes, and either all
// digits are decimal or there are at least eight, including a decimal one.
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

// maxLine is the largest number of digits of a line number.
const maxLine = 5

// isLine reports whether name[i:j], a word, is the number of a line: digits behind an identifier and '#'.
func isLine(name []byte, i, j int) bool {
	if i < 2 || name[i-1] != '#' || j-i > maxLine || slices.ContainsFunc(name[i:j], func(c byte) bool { return !isDigit(c) }) {
		return false
	}
	start := i - 1
	for start > 0 && inWord(name[start-1]) {
		start--
	}
	identifier := name[start : i-1]
	return len(identifier) > 0 && !isDigit(identifier[0]) && identifier[0] != '-' && !isVarying(identifier)
}
