package gitignore

import "strings"

// A path is an entry's path in two parts, so that nothing has to join them.
type path struct {
	dir, name string
}

func (t path) len() int { return len(t.dir) + len(t.name) }

func (t path) at(i int) byte {
	if i < len(t.dir) {
		return t.dir[i]
	}
	return t.name[i-len(t.dir)]
}

func (t path) from(i int) path {
	if i < len(t.dir) {
		return path{t.dir[i:], t.name}
	}
	return path{"", t.name[i-len(t.dir):]}
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

// MatchPath reports whether all of a path with slashes matches what git takes a
// pattern for in conditions of its configuration.
func MatchPath(pattern, p string) bool {
	g, ok := compile(pattern)
	return ok && g.match(path{"", p})
}

// match reports whether g matches all of t.
//
// Only the last * and the last ** are tried again with more. That is enough,
// since what came before them matched as early as it could, and it bounds the
// time: within a component by the product of the lengths, times the number of
// places where the last ** may end.
func (g glob) match(t path) bool {
	const none = -1
	var (
		i, k       = 0, 0       // next in t, in g
		star, deep = none, none // index in g behind the last * of this component, and the last **
		starEnd    int          // where in t it ends
		deepEnd    int
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
				return false // with a longer * or ** there would be even less left
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

// compile returns false if p can match nothing.
func compile(p string) (g glob, ok bool) {
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
			s, n := parseSet(p[i:])
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
			fallthrough
		default:
			g = append(g, token{op: opByte, lit: p[i]})
			i++
		}
	}
	return g, true
}

// A set is the bytes that a [...] matches.
type set [256 / 64]uint64

func (s *set) has(b byte) bool { return s[b/64]>>(b%64)&1 != 0 }

func (s *set) add(first, last byte) {
	for b := int(first); b <= int(last); b++ {
		s[b/64] |= 1 << (b % 64)
	}
}

// parseSet parses the [...] at the beginning of p and returns its length: 0 if
// it does not end, or names a class that there is not.
func parseSet(p string) (*set, int) {
	s := &set{}
	i := 1
	negated := i < len(p) && (p[i] == '!' || p[i] == '^')
	if negated {
		i++
	}
	var prev byte // with which a range may begin, or 0
	for first := true; ; first = false {
		if i >= len(p) {
			return nil, 0
		}
		c := p[i]
		switch {
		case c == ']' && !first:
			if negated {
				for j := range s {
					s[j] = ^s[j]
				}
			}
			s['/'/64] &^= 1 << ('/' % 64) // a slash is matched by itself alone
			return s, i + 1
		case c == '-' && prev != 0 && i+1 < len(p) && p[i+1] != ']':
			i++
			if p[i] == '\\' {
				i++
			}
			if i == len(p) {
				return nil, 0
			}
			s.add(prev, p[i])
			prev = 0
			i++
			continue
		case c == '[' && strings.HasPrefix(p[i+1:], ":"):
			end := strings.IndexByte(p[i+2:], ']')
			if end < 0 {
				return nil, 0
			}
			if name, found := strings.CutSuffix(p[i+2:i+2+end], ":"); found {
				if !s.addClass(name) {
					return nil, 0
				}
				prev = 0
				i += 2 + end + 1
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

// addClass adds the bytes of a POSIX class, which are ASCII for git.
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
	case "space": // for git without \v and \f
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
