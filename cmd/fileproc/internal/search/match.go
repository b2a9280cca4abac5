package search

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A matcher finds the lines that match one of the patterns. All workers share it.
type matcher struct {
	re *regexp.Regexp // of one line, without its newline
	// later is re for the rest of a line after a match: the beginning of that rest is not a word boundary. It is nil without
	// -w. In both the first group is the match.
	later *regexp.Regexp
	// Every matching line contains at least one of literals. It is empty if no such literals are known.
	literals []literal
	exact    bool // every line with one of the literals matches
	folds    bool // a line with one of asciiFolds may match without a literal
}

// asciiFolds are the letters outside ASCII that equal s and k in either case. Few files have them.
var asciiFolds = [][]byte{[]byte("ſ"), []byte("\u212a")}

// nonWord matches a character that is not part of a word.
const nonWord = `[^\pL\pM\p{Nd}\p{Pc}]`

// escapes matches the parts of a pattern that do not stand for themselves: escapes, classes, flags and names of groups.
var escapes = regexp.MustCompile(`\\[pP](?:\{[^}]*\}|.)|\\x(?:\{[^}]*\}|..)|\\[0-7]{2,3}|\\.|\[:\^?\w+:\]|\(\?(?:P?<\w+>|[a-zA-Z-]*[:)])`)

var capital = regexp.MustCompile(`[\p{Lu}\p{Lt}]|^[].*+?|(){}^$\d,[]*$`) // or no literal, as in rg

var errNewline = errors.New("a pattern with a newline matches no line")

type matchOptions struct {
	fixed, ignoreCase, smartCase, word, line bool
}

func newMatcher(patterns []string, o matchOptions) (*matcher, error) {
	alternatives, text := slices.Clone(patterns), ""
	for i, p := range patterns {
		if o.fixed {
			alternatives[i] = regexp.QuoteMeta(p)
		}
		text += escapes.ReplaceAllString(alternatives[i], "")
	}
	flags := syntax.Perl
	if o.ignoreCase || o.smartCase && !capital.MatchString(text) {
		flags |= syntax.FoldCase
	}
	for i, p := range alternatives {
		tree, err := syntax.Parse(p, flags)
		if err != nil {
			return nil, fmt.Errorf("invalid pattern: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
		if holdsNewline(tree) {
			return nil, errNewline
		}
		alternatives[i] = "(?:" + tree.String() + ")"
	}
	all := strings.Join(alternatives, "|")
	if len(patterns) == 0 {
		all = `[^\x00-\x{10FFFF}]` // nothing
	}
	tree, err := syntax.Parse(all, syntax.Perl)
	if err != nil {
		return nil, err
	}
	m := &matcher{literals: required(tree.Simplify())}
	m.folds = slices.ContainsFunc(m.literals, func(l literal) bool { return l.fold && bytes.ContainsAny(l.text, "ksKS") })
	m.exact = tree.Op == syntax.OpLiteral && m.literals != nil && len(m.literals[0].text) == len(string(tree.Rune)) &&
		!o.line && !o.word
	switch {
	case o.line:
		all = "^(?:" + all + ")$"
	case o.word:
		after := "(" + all + ")(?:$|" + nonWord + ")"
		if m.later, err = regexp.Compile(nonWord + after); err != nil {
			return nil, err
		}
		all = "(?:^|" + nonWord + ")" + after
	}
	m.re, err = regexp.Compile(all)
	return m, err
}

func holdsNewline(tree *syntax.Regexp) bool {
	if tree.Op == syntax.OpLiteral && slices.Contains(tree.Rune, '\n') {
		return true
	}
	return slices.ContainsFunc(tree.Sub, holdsNewline)
}

// matches returns the matches in a line as pairs of offsets.
func (m *matcher) matches(line []byte) (found [][]int) {
	if m.later == nil {
		return m.re.FindAllIndex(line, -1)
	}
	re := m.re
	for pos := 0; pos <= len(line); re = m.later {
		at := re.FindSubmatchIndex(line[pos:])
		if at == nil {
			break
		}
		found = append(found, []int{pos + at[2], pos + at[3]})
		pos += at[3] // later takes at least one character more, also after an empty match
	}
	return found
}

// A literal is a text to find in content.
type literal struct {
	text []byte
	// With fold, ASCII letters match in either case, and index looks for the byte c, which text has at offset rare.
	fold bool
	rare int
	c    byte
}

// index returns where l begins in b, or -1.
func (l *literal) index(b []byte) int {
	if !l.fold {
		return bytes.Index(b, l.text)
	}
	for i := 0; i+len(l.text) <= len(b); i++ {
		next := bytes.IndexByte(b[i+l.rare:], l.c)
		i += next
		if next < 0 || i+len(l.text) > len(b) {
			break
		}
		if b[i]|0x20 == l.text[0]|0x20 && bytes.EqualFold(b[i:i+len(l.text)], l.text) {
			return i
		}
	}
	return -1
}

// required returns literals such that every match of the simplified tree contains at least one of them, or nil if it knows none.
func required(tree *syntax.Regexp) (found []literal) {
	switch tree.Op {
	case syntax.OpLiteral:
		return literalsOf(tree)
	case syntax.OpCapture, syntax.OpPlus:
		return required(tree.Sub[0])
	case syntax.OpConcat:
		for _, sub := range tree.Sub {
			if l := required(sub); worth(l) > worth(found) {
				found = l
			}
		}
	case syntax.OpAlternate:
		for _, sub := range tree.Sub {
			l := required(sub)
			if l == nil {
				return nil
			}
			found = append(found, l...)
		}
	}
	return found
}

// worth ranks a set of literals: first by the length of its shortest literal, then by how few there are.
func worth(set []literal) int {
	if len(set) == 0 {
		return 0
	}
	shortest := slices.MinFunc(set, func(a, b literal) int { return len(a.text) - len(b.text) })
	return len(shortest.text)<<16 - len(set)
}

// frequent lists the letters and the space, the most frequent last.
const frequent = "zjqxkvwybgfpmhdulcrsnioate "

// literalsOf returns the longest part of a literal that index can find as bytes. If case does not matter, it returns the
// part twice, once for each case of its rarest letter.
func literalsOf(tree *syntax.Regexp) []literal {
	l := literal{fold: tree.Flags&syntax.FoldCase != 0}
	for _, part := range strings.FieldsFunc(string(tree.Rune), func(r rune) bool {
		return r == utf8.RuneError || l.fold && r >= utf8.RuneSelf // U+FFFD matches bytes that are not UTF-8
	}) {
		if len(part) > len(l.text) {
			l.text = []byte(part)
		}
	}
	switch {
	case l.text == nil:
		return nil
	case !l.fold:
		return []literal{l}
	}
	lower := bytes.ToLower(l.text)
	for i, c := range lower {
		if strings.IndexByte(frequent, c) < strings.IndexByte(frequent, lower[l.rare]) {
			l.rare = i
		}
	}
	l.c = lower[l.rare]
	upper := l
	upper.c = byte(unicode.ToUpper(rune(l.c)))
	return []literal{l, upper}
}

// A lineFinder finds the matching lines of one buffer, from its beginning to its end.
type lineFinder struct {
	m    *matcher
	buf  []byte
	slow bool  // every line is matched, because no literals are known or buf has one of asciiFolds
	next []int // for each literal its next offset, len(buf) if there is none; out of date if before the current position
}

func (f *lineFinder) reset(m *matcher, buf []byte) {
	f.m, f.buf, f.next = m, buf, f.next[:0]
	f.slow = len(m.literals) == 0 ||
		m.folds && slices.ContainsFunc(asciiFolds, func(c []byte) bool { return bytes.Contains(buf, c) })
	for range m.literals {
		f.next = append(f.next, -1)
	}
}

// find returns the bounds, without the newline, of the first matching line at or after pos, which is the beginning of a
// line. Both are len(f.buf) if there is none.
func (f *lineFinder) find(pos int) (begin, end int) {
	for ; pos < len(f.buf); pos = end + 1 {
		at := pos
		if !f.slow {
			at = f.literal(pos)
		}
		begin = pos + bytes.LastIndexByte(f.buf[pos:at], '\n') + 1
		end = lineEnd(f.buf, at)
		if at < len(f.buf) && (f.m.exact && !f.slow || f.m.re.Match(f.buf[begin:end])) {
			return begin, end
		}
	}
	return len(f.buf), len(f.buf)
}

// literal returns the offset of the first literal at or after pos, or len(f.buf).
func (f *lineFinder) literal(pos int) int {
	first := len(f.buf)
	for i := range f.next {
		if f.next[i] < pos {
			f.next[i] = len(f.buf)
			if at := f.m.literals[i].index(f.buf[pos:]); at >= 0 {
				f.next[i] = pos + at
			}
		}
		first = min(first, f.next[i])
	}
	return first
}

// lineEnd returns the end of the line that contains pos: the offset of its newline, or len(b).
func lineEnd(b []byte, pos int) int {
	if i := bytes.IndexByte(b[pos:], '\n'); i >= 0 {
		return pos + i
	}
	return len(b)
}
