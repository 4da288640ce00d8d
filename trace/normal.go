package trace

import "slices"

// NormalName returns name with the parts that differ between requests replaced by "{}", so that the number of operations
// stays small: words made of digits, UUIDs, and words of hexadecimal digits (at least 8 of them, at least one a digit) become "{}";
// a word that merely contains digits (v2, s3, md5sum) stays. Words are separated by anything but letters, digits, '_' and
// '-'.
//
// It returns name itself where nothing has to be replaced, else buf[:0] extended. It is idempotent.
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
		case isVarying(word):
			out = append(out, '{', '}')
		default:
			out = append(out, word...)
		}
		i = j
	}
	return out
}

// mayVary is a cheap test that spares most names the work: without a digit nothing is replaced.
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

// isVarying reports whether word is a number, a UUID or a hash: hexadecimal digits and dashes, with either only decimal
// digits, or at least eight hexadecimal digits of which at least one is decimal.
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
