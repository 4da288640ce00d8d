package trace

import "slices"

// NormalName returns name with the parts that vary between requests replaced by "{}", which keeps the number of
// operations small. It replaces numbers, UUIDs, and words of at least 8 hexadecimal digits with at least one decimal
// digit among them. A word that merely contains digits (v2, s3, md5sum) stays. Words consist of letters, digits, '_'
// and '-'.
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
		case isVarying(word):
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
