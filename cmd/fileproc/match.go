package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// A matcher finds the lines that match one of the patterns. It is shared by all workers.
type matcher struct {
	re *regexp.Regexp // of one line, without its newline
	// literals are texts of which a matching line holds at least one. There are none if none are known.
	literals []literal
	exact    bool // a line with one of the literals matches
	// window, where there are no literals, tells where a line may match. It is nil if that would not be of use.
	window *window
	// folds says that literals and window hold for content without asciiFolds alone.
	folds bool

	// With word, the match is the first group of re, and of later, which is re for what follows an earlier match of the
	// line: there, the beginning of the text is no boundary.
	word  bool
	later *regexp.Regexp
}

// nonWord matches what cannot stand beside a word.
const nonWord = `[^\pL\pM\p{Nd}\p{Pc}]`

type matchOptions struct {
	fixed, ignoreCase, smartCase, word, line bool
}

func newMatcher(patterns []string, o matchOptions) (*matcher, error) {
	fold := o.ignoreCase
	if o.smartCase && !fold {
		fold = !slices.ContainsFunc(patterns, hasUpper)
	}
	alternatives := make([]string, len(patterns))
	for i, p := range patterns {
		if o.fixed {
			p = regexp.QuoteMeta(p)
		}
		tree, err := syntax.Parse(p, syntax.Perl)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", p, err)
		}
		if holdsNewline(tree) {
			return nil, errors.New("a pattern with a newline matches no line")
		}
		alternatives[i] = "(?:" + p + ")"
	}
	all := strings.Join(alternatives, "|")
	if fold {
		all = "(?i:" + all + ")"
	}
	m := &matcher{word: o.word}
	tree, err := syntax.Parse(all, syntax.Perl)
	if err != nil {
		return nil, err
	}
	tree = tree.Simplify()
	m.folds = foldsBeyondASCII(tree)
	m.literals, m.exact = required(tree)
	cost := m.literalCost()
	if window, windowCost := newWindow(tree); window != nil && windowCost < min(cost, dfaCost) {
		m.window = window
	}
	if m.window != nil || cost > dfaCost {
		m.literals = nil
	}
	switch {
	case o.line:
		all, m.word, m.exact = "^(?:"+all+")$", false, false
	case o.word:
		after := "(" + all + ")(?:$|" + nonWord + ")"
		if m.later, err = regexp.Compile(nonWord + after); err != nil {
			return nil, err
		}
		all, m.exact = "(?:^|"+nonWord+")"+after, false
	}
	m.exact = m.exact && len(m.literals) > 0
	m.re, err = regexp.Compile(all)
	return m, err
}

// literalCost is what looking for the literals takes, with lines that hold one in vain.
func (m *matcher) literalCost() float64 {
	if len(m.literals) == 0 || len(m.literals) > maxLiterals {
		return math.Inf(1)
	}
	cost := 0.0
	for _, l := range m.literals {
		of := func(lower byte) float64 {
			if upper := l.otherCase(lower); upper != lower {
				return frequency(lower) + frequency(upper)
			}
			return frequency(lower)
		}
		cost += 0.05 + 6*of(l.lower)
		if m.exact {
			continue
		}
		lines := 1.0
		for _, c := range l.text {
			lines *= of(c)
		}
		cost += lineCost * lines
	}
	return cost
}

// hasUpper reports whether a pattern has a capital letter that stands for itself.
func hasUpper(pattern string) bool {
	escaped := false
	for _, r := range pattern {
		if !escaped && strings.ToLower(string(r)) != string(r) {
			return true
		}
		escaped = r == '\\' && !escaped
	}
	return false
}

func holdsNewline(tree *syntax.Regexp) bool {
	if tree.Op == syntax.OpLiteral && slices.Contains(tree.Rune, '\n') {
		return true
	}
	return slices.ContainsFunc(tree.Sub, holdsNewline)
}

// matches appends the matches in a line as pairs of offsets.
func (m *matcher) matches(line []byte, found [][2]int) [][2]int {
	switch {
	case m.exact && len(m.literals) == 1 && !m.literals[0].fold:
		text := m.literals[0].text
		for pos := 0; ; {
			i := bytes.Index(line[pos:], text)
			if i < 0 {
				return found
			}
			found = append(found, [2]int{pos + i, pos + i + len(text)})
			pos += i + len(text)
		}
	case m.word:
		re := m.re
		for pos := 0; ; {
			at := re.FindSubmatchIndex(line[pos:])
			if at == nil {
				return found
			}
			found = append(found, [2]int{pos + at[2], pos + at[3]})
			if at[3] == at[2] { // an empty match: go on behind the next character
				_, n := utf8.DecodeRune(line[pos+at[3]:])
				at[3] += n
			}
			pos += at[3]
			if pos >= len(line) {
				return found
			}
			re = m.later
		}
	}
	for _, at := range m.re.FindAllIndex(line, -1) {
		found = append(found, [2]int{at[0], at[1]})
	}
	return found
}

// maxLiterals is how many literals are looked for one by one.
const maxLiterals = 8

// A literal is a text that is looked for in content, by its rarest byte.
type literal struct {
	text []byte // in lower case if fold
	fold bool   // ASCII letters of either case

	rare         int  // the offset in text of its rarest byte
	lower, upper byte // that byte, and with fold its other case
}

func newLiteral(text string, fold bool) literal {
	l := literal{text: []byte(text), fold: fold}
	for i, c := range l.text {
		if rank(c) > rank(l.text[l.rare]) {
			l.rare = i
		}
	}
	l.lower = l.text[l.rare]
	l.upper = l.otherCase(l.lower)
	return l
}

// otherCase returns the other case of a byte of l, or the byte if it has none or it does not matter.
func (l *literal) otherCase(lower byte) byte {
	if l.fold && 'a' <= lower && lower <= 'z' {
		return lower - ('a' - 'A')
	}
	return lower
}

// frequency is about how much of text and code a byte makes up.
func frequency(b byte) float64 {
	switch r := rank(b); {
	case r < len(frequent):
		return 0.4 / (4 + float64(r))
	case ' ' < b && b < utf8.RuneSelf:
		return 0.0015
	}
	return 0.0002
}

// frequent is the bytes that text and code are made of, the most frequent first.
const frequent = " etaoinsrlcdupmhfgb_.ywv,\"()/-0=1kx2:*;jq3z"

// rank is the higher the rarer a byte is in text and code.
func rank(c byte) int {
	if i := strings.IndexByte(frequent, c); i >= 0 {
		return i
	}
	return len(frequent)
}

// index returns where l begins in b, or -1.
func (l *literal) index(b []byte) int {
	lower, upper := -1, -1 // the next places of the rare byte
	for i := l.rare; ; {
		lower = nextByte(b, lower, i, l.lower)
		at := lower
		if l.upper != l.lower {
			upper = nextByte(b, upper, i, l.upper)
			at = min(lower, upper)
		}
		begin := at - l.rare
		end := begin + len(l.text)
		switch {
		case end > len(b):
			return -1
		case l.fold && equalFold(b[begin:end], l.text), !l.fold && bytes.Equal(b[begin:end], l.text):
			return begin
		}
		i = at + 1
	}
}

// nextByte returns the first place at or behind from where b has c, or len(b). The answer to the last call is known.
func nextByte(b []byte, known, from int, c byte) int {
	if known >= from {
		return known
	}
	if from < len(b) {
		if i := bytes.IndexByte(b[from:], c); i >= 0 {
			return from + i
		}
	}
	return len(b)
}

func equalFold(b, lower []byte) bool {
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// required returns literals of which every match of tree holds at least one, or none if it knows none. exact says that
// holding one is all that a match takes.
func required(tree *syntax.Regexp) (found []literal, exact bool) {
	switch tree.Op {
	case syntax.OpLiteral:
		return literalOf(tree)
	case syntax.OpCapture:
		return required(tree.Sub[0])
	case syntax.OpPlus:
		return required(tree.Sub[0]) // one is enough
	case syntax.OpRepeat:
		if tree.Min > 0 {
			found, _ = required(tree.Sub[0])
		}
		return found, false
	case syntax.OpConcat:
		for _, sub := range tree.Sub {
			if l, _ := required(sub); better(l, found) {
				found = l
			}
		}
		return found, false
	case syntax.OpAlternate:
		exact = true
		for _, sub := range tree.Sub {
			l, e := required(sub)
			if len(l) == 0 {
				return nil, false
			}
			found, exact = append(found, l...), exact && e
		}
		return found, exact
	}
	return nil, false
}

// better prefers the set whose shortest text is longer, and then the smaller one.
func better(a, b []literal) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) > 0
	}
	x, y := shortest(a), shortest(b)
	return x > y || x == y && len(a) < len(b)
}

func shortest(set []literal) int {
	n := len(set[0].text)
	for _, l := range set {
		n = min(n, len(l.text))
	}
	return n
}

// literalOf returns the longest part of a literal that can be looked for as bytes.
func literalOf(tree *syntax.Regexp) ([]literal, bool) {
	if tree.Flags&syntax.FoldCase == 0 {
		// U+FFFD matches bytes that are not UTF-8.
		if slices.Contains(tree.Rune, utf8.RuneError) {
			return nil, false
		}
		return []literal{newLiteral(string(tree.Rune), false)}, true
	}
	longest, part := "", []byte(nil)
	exact := true
	for i := 0; i <= len(tree.Rune); i++ {
		if i < len(tree.Rune) && tree.Rune[i] < utf8.RuneSelf {
			part = append(part, strings.ToLower(string(tree.Rune[i]))...)
			continue
		}
		exact = exact && i == len(tree.Rune)
		if len(part) > len(longest) {
			longest = string(part)
		}
		part = part[:0]
	}
	if longest == "" {
		return nil, false
	}
	return []literal{newLiteral(longest, true)}, exact
}

// The characters beyond ASCII that are equal to one of ASCII, to s and k, where case does not matter.
const (
	longS  = 'ſ'
	kelvin = '\u212a'
)

// asciiFolds are these in UTF-8. Content has them so seldom that literals and windows leave them out of account.
var asciiFolds = [][]byte{[]byte(string(longS)), []byte(string(kelvin))}

// foldsBeyondASCII reports whether tree has one of asciiFolds only since it has the letter.
func foldsBeyondASCII(tree *syntax.Regexp) bool {
	switch {
	case tree.Op == syntax.OpLiteral && tree.Flags&syntax.FoldCase != 0:
		return slices.ContainsFunc(tree.Rune, func(r rune) bool { return strings.ContainsRune("kKsS", r) })
	case tree.Op == syntax.OpCharClass:
		for i := 0; i < len(tree.Rune); i += 2 {
			if lo, hi := tree.Rune[i], tree.Rune[i+1]; lo == hi && (lo == longS || lo == kelvin) {
				return true
			}
		}
	}
	return slices.ContainsFunc(tree.Sub, foldsBeyondASCII)
}

// A lineFinder finds the matching lines of one buffer, from its beginning to its end.
type lineFinder struct {
	m    *matcher
	dfa  *dfa // of m.re
	buf  []byte
	slow bool             // neither literals nor window hold
	next [maxLiterals]int // for each literal its next place, at most len(buf); valid if not less than where it is looked for
}

func (f *lineFinder) reset(m *matcher, buf []byte) {
	if f.dfa == nil {
		f.dfa, _ = newDFA(m.re.String()) // which newMatcher has compiled
	}
	f.m, f.buf = m, buf
	f.slow = m.folds && slices.ContainsFunc(asciiFolds, func(c []byte) bool { return bytes.Contains(buf, c) })
	for i := range f.next {
		f.next[i] = -1
	}
}

// find returns the bounds of the next matching line at or behind pos, which is a line's beginning, without its newline.
func (f *lineFinder) find(pos int) (begin, end int, ok bool) {
	for pos < len(f.buf) {
		at, sure := f.candidate(pos)
		if at < 0 {
			return 0, 0, false
		}
		begin = pos + bytes.LastIndexByte(f.buf[pos:at], '\n') + 1
		end = lineEnd(f.buf, at)
		if sure || f.dfa.find(f.buf[begin:end]) >= 0 {
			return begin, end, true
		}
		pos = end + 1
	}
	return 0, 0, false
}

// candidate returns a place in the first line at or behind pos that may match, or -1. sure says that it does match.
func (f *lineFinder) candidate(pos int) (at int, sure bool) {
	switch {
	case f.slow:
		at, sure = f.dfa.find(f.buf[pos:]), true
	case len(f.m.literals) > 0:
		if at = f.literal(pos); at == len(f.buf) {
			return -1, false
		}
		return at, f.m.exact
	case f.m.window != nil:
		at = f.m.window.index(f.buf[pos:])
	default:
		at, sure = f.dfa.find(f.buf[pos:]), true
	}
	if at >= 0 {
		at += pos
	}
	return at, sure
}

// literal returns where the first literal at or behind pos is, or len(buf).
func (f *lineFinder) literal(pos int) int {
	first := len(f.buf)
	for i := range f.m.literals {
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

// lineEnd returns where the line that pos is in ends: the place of its newline, or len(b).
func lineEnd(b []byte, pos int) int {
	if i := bytes.IndexByte(b[pos:], '\n'); i >= 0 {
		return pos + i
	}
	return len(b)
}
