package pattern

import (
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"
)

// AppendFold appends s, with the same letter in place of all letters that strings.EqualFold
// treats as equal. Bytes that are not UTF-8 stay as they are.
func AppendFold(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			b = append(b, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError {
			b = append(b, s[i:i+n]...)
		} else {
			b = utf8.AppendRune(b, fold(r))
		}
		i += n
	}
	return b
}

// fold returns the first of the letters that differ from r at most in case.
func fold(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}

// Fold returns a pattern for folded paths: it matches what AppendFold returns for the paths that
// pattern matches without regard to case. The argument must be well-formed.
func Fold(pattern string) string {
	var b []byte
	for i := 0; i < len(pattern); {
		if pattern[i] == '[' {
			end := behind(pattern, i)
			b = appendFoldedClass(b, pattern[i:end])
			i = end
			continue
		}
		if pattern[i] == '\\' {
			b = append(b, '\\')
			i++
		}
		_, n := utf8.DecodeRuneInString(pattern[i:])
		b = AppendFold(b, pattern[i:i+n])
		i += n
	}
	return string(b)
}

// appendFoldedClass appends class, with its brackets, and inserts the folds of its members
// in front of the members.
func appendFoldedClass(b []byte, class string) []byte {
	b = append(b, '[')
	members := class[1 : len(class)-1]
	if members[0] == '!' || members[0] == '^' {
		b = append(b, members[0])
		members = members[1:]
	}
	rest := []rune(members)
	next := func() (r rune) {
		if rest[0] == '\\' {
			rest = rest[1:]
		}
		r, rest = rest[0], rest[1:]
		return r
	}
	for len(rest) > 0 {
		low := next()
		high := low
		if len(rest) > 1 && rest[0] == '-' {
			rest = rest[1:]
			high = max(low, next()) // [c-a] has c
		}
		all := foldable()
		from, _ := slices.BinarySearch(all, low)
		for ; from < len(all) && all[from] <= high; from++ {
			b = utf8.AppendRune(b, fold(all[from]))
		}
	}
	if members[0] == '-' { // else the last fold would begin a range
		b = append(b, '\\')
	}
	return append(append(b, members...), ']')
}

// foldable returns the letters that fold changes, in order.
var foldable = sync.OnceValue(func() (all []rune) {
	for _, c := range unicode.CaseRanges {
		for r := rune(c.Lo); r <= rune(c.Hi); r++ {
			if fold(r) != r {
				all = append(all, r)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
})
