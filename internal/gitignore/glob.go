package gitignore

import "strings"

// A path is an entry's path in two parts, so that nobody has to join them.
type path struct {
	dir, name string
	folds     bool // at gives letters in lower case
}

func (t path) len() int { return len(t.dir) + len(t.name) }

func (t path) at(i int) byte {
	s := t.dir
	if i >= len(s) {
		s, i = t.name, i-len(s)
	}
	if t.folds {
		return lower(s[i])
	}
	return s[i]
}

func (t path) from(i int) path {
	if i < len(t.dir) {
		return path{t.dir[i:], t.name, t.folds}
	}
	return path{"", t.name[i-len(t.dir):], t.folds}
}

// A glob is a compiled pattern.
type glob []token

type token struct {
	op  op
	lit byte // of opByte
	set *set // of opSet
}

type op uint8

const (
	opByte op = iota
	opAny     // ?
	opSet     // [...]
	opStar    // *: any bytes but slashes
	opAll     // **: any bytes
	opDirs    // **/: nothing, or any bytes up to a slash
)

// MatchPath reports whether a pattern matches a whole slash-separated path, as
// the conditions in git's configuration do.
func MatchPath(pattern, p string) bool {
	g, ok := compile(pattern, false)
	return ok && g.match(path{name: p})
}

// match reports whether g matches all of t.
//
// It backtracks only to the last * and to the last **. That is enough, because
// the tokens before them matched as early as possible. So the time is at most the product
// of the lengths of a component and the pattern, times the number of positions where
// the last ** may end.
func (g glob) match(t path) bool {
	const none = -1
	var (
		i, k       = 0, 0       // next index in t and in g
		star, deep = none, none // index in g after the last * of this component, and after the last **
		starEnd    int          // index in t where the match of that * ends
		deepEnd    int          // index in t where the match of that ** ends
		n          = t.len()
	)
	for {
		if k < len(g) {
			tok := &g[k]
			switch {
			case tok.op == opStar:
				k++
				star, starEnd = k, i
				continue
			case tok.op >= opAll:
				k++
				deep, deepEnd, star = k, i, none
				continue
			case i == n:
				return false // a longer * or ** would leave even less
			case tok.matches(t.at(i)):
				if t.at(i) == '/' {
					star = none
				}
				i++
				k++
				continue
			}
		} else if i == n {
			return true
		}
		switch {
		case star != none && t.at(starEnd) != '/': // i < n, and starEnd <= i
			starEnd++
			i, k = starEnd, star
		case deep != none:
			if g[deep-1].op == opDirs {
				for deepEnd < n && t.at(deepEnd) != '/' {
					deepEnd++
				}
			}
			if deepEnd == n {
				return false
			}
			deepEnd++
			i, k, star = deepEnd, deep, none
		default:
			return false
		}
	}
}

func (t *token) matches(b byte) bool {
	switch t.op {
	case opByte:
		return b == t.lit
	case opAny:
		return b != '/'
	}
	return t.set.has(b)
}

// compile returns the glob of p. ok is false if p can match nothing. With folds, the glob matches paths in lower case. As in git, a letter
// in upper case matches none of these behind a backslash or in a set, but it counts in a range.
func compile(p string, folds bool) (g glob, ok bool) {
	for i := 0; i < len(p); {
		switch p[i] {
		case '?':
			g = append(g, token{op: opAny})
			i++
		case '*':
			start := i
			for i < len(p) && p[i] == '*' {
				i++
			}
			deep := i-start > 1 && (start == 0 || p[start-1] == '/')
			switch {
			case deep && strings.HasPrefix(p[i:], "/"):
				g = append(g, token{op: opDirs})
				i++
			case deep && (i == len(p) || strings.HasPrefix(p[i:], `\/`)):
				g = append(g, token{op: opAll})
			default:
				g = append(g, token{op: opStar})
			}
		case '[':
			s, n := parseSet(p[i:], folds)
			if n == 0 {
				return nil, false
			}
			g = append(g, token{op: opSet, set: s})
			i += n
		case '\\':
			i++
			if i == len(p) {
				return nil, false
			}
			g = append(g, token{op: opByte, lit: p[i]})
			i++
		default:
			lit := p[i]
			if folds {
				lit = lower(lit)
			}
			g = append(g, token{op: opByte, lit: lit})
			i++
		}
	}
	return g, true
}

// A set holds the bytes that a [...] matches.
type set [256 / 64]uint64

func (s *set) has(b byte) bool { return s[b/64]>>(b%64)&1 != 0 }

func (s *set) add(first, last byte) {
	for b := int(first); b <= int(last); b++ {
		s[b/64] |= 1 << (b % 64)
	}
}

// parseSet parses the [...] at the beginning of p and returns its length, which
// is 0 if it has no end or names an unknown class.
func parseSet(p string, folds bool) (*set, int) {
	s := &set{}
	i := 1
	negated := i < len(p) && (p[i] == '!' || p[i] == '^')
	if negated {
		i++
	}
	var prev byte // the possible first byte of a range, or 0
	for first := true; ; first = false {
		if i >= len(p) {
			return nil, 0
		}
		c := p[i]
		switch {
		case c == ']' && !first:
			s.end(negated)
			return s, i + 1
		case c == '-' && prev != 0 && i+1 < len(p) && p[i+1] != ']':
			n := s.addRange(prev, p[i+1:], folds)
			if n == 0 {
				return nil, 0
			}
			prev = 0
			i += 1 + n
			continue
		case c == '[' && strings.HasPrefix(p[i+1:], ":"):
			n, ok := s.parseClass(p[i:], folds)
			if !ok {
				return nil, 0
			}
			if n > 0 {
				prev = 0
				i += n
				continue
			}
		case c == '\\':
			i++
			if i == len(p) {
				return nil, 0
			}
			c = p[i]
		}
		s.add(c, c)
		prev = c
		i++
	}
}

// addRange adds the bytes from first to the one at the beginning of p, which may follow a
// backslash. It returns the length of that, which is 0 if there is none.
func (s *set) addRange(first byte, p string, folds bool) int {
	n := 0
	if p[n] == '\\' {
		n++
	}
	if n == len(p) {
		return 0
	}
	s.add(first, p[n])
	if folds && first <= 'Z' && p[n] >= 'A' {
		s.add(lower(max(first, 'A')), lower(min(p[n], 'Z')))
	}
	return n + 1
}

// end makes s the set of the other bytes, if negated, without the slash, which no set matches.
func (s *set) end(negated bool) {
	if negated {
		for j := range s {
			s[j] = ^s[j]
		}
	}
	s['/'/64] &^= 1 << ('/' % 64)
}

// parseClass adds the class at the beginning of p, which is "[:", and returns the length of
// the class. It returns 0 if p is no class, and false if the class has no end or is unknown.
func (s *set) parseClass(p string, folds bool) (int, bool) {
	end := strings.IndexByte(p[2:], ']')
	if end < 0 {
		return 0, false
	}
	name, found := strings.CutSuffix(p[2:2+end], ":")
	if !found {
		return 0, true
	}
	if folds && name == "upper" {
		s.add('a', 'z')
	}
	return 2 + end + 1, s.addClass(name)
}

// addClass adds the bytes of a POSIX class, which has only ASCII in git. It returns false if there is no such class.
func (s *set) addClass(name string) bool {
	switch name {
	case "alnum":
		return s.addClass("alpha") && s.addClass("digit")
	case "alpha":
		return s.addClass("lower") && s.addClass("upper")
	case "blank":
		s.add('\t', '\t')
		s.add(' ', ' ')
	case "cntrl":
		s.add(0, 0x1f)
		s.add(0x7f, 0x7f)
	case "digit":
		s.add('0', '9')
	case "graph":
		s.add('!', '~')
	case "lower":
		s.add('a', 'z')
	case "print":
		s.add(' ', '~')
	case "punct":
		s.add('!', '/')
		s.add(':', '@')
		s.add('[', '`')
		s.add('{', '~')
	case "space": // git leaves out \v and \f
		s.add('\t', '\n')
		s.add('\r', '\r')
		s.add(' ', ' ')
	case "upper":
		s.add('A', 'Z')
	case "xdigit":
		s.add('0', '9')
		s.add('A', 'F')
		s.add('a', 'f')
	default:
		return false
	}
	return true
}
