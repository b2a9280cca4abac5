package fileproc

import (
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// maxAlternatives is how many patterns the braces of one may expand to.
const maxAlternatives = 1 << 16

// A glob is a pattern of Options.Include or Exclude without braces, split at
// its slashes. A part matches one name, and ** any number of names. So no part
// can match a slash, and pruning directories and matching files agree.
type glob []globPart

// A globPart is what one name, or with ** any number of names, must match.
type globPart struct {
	kind partKind
	text string
}

type partKind uint8

const (
	partGlob   partKind = iota // f*o
	partName                   // foo
	partSuffix                 // *foo, with foo as text
	partAny                    // **
)

// globsOf returns the globs that pattern expands to.
func globsOf(pattern string) []glob {
	var globs []glob
	for _, p := range alternatives(nil, pattern) {
		var g glob
		start := 0
		for i, next := 0, 0; i < len(p); i = next {
			next = behind(p, i)
			if strings.TrimPrefix(p[i:next], `\`) == "/" {
				g = append(g, newPart(p[start:i]))
				start = next
			}
		}
		globs = append(globs, append(g, newPart(p[start:])))
	}
	return globs
}

func newPart(p string) globPart {
	if p == "**" {
		return globPart{kind: partAny}
	}
	var b strings.Builder
	last := ""
	for i := 0; i < len(p); i = behind(p, i) {
		this := p[i:behind(p, i)]
		if this != "*" || last != "*" { // doublestar may take two of several for **
			b.WriteString(this)
		}
		last = this
	}
	p = b.String()
	const special = `*?[\`
	suffix, star := strings.CutPrefix(p, "*")
	switch {
	case strings.ContainsAny(suffix, special):
		return globPart{partGlob, p}
	case star:
		return globPart{partSuffix, suffix}
	}
	return globPart{partName, p}
}

func (p globPart) matches(name string) bool {
	switch p.kind {
	case partName:
		return name == p.text
	case partSuffix:
		return strings.HasSuffix(name, p.text)
	}
	return doublestar.MatchUnvalidated(p.text, name)
}

// alternatives appends what pattern expands to, one pattern for each
// alternative of each {a,b}. It stops one above maxAlternatives.
func alternatives(all []string, pattern string) []string {
	open := -1
	depth := 0
	var ends []int // of the alternatives
	for i := 0; i < len(pattern); i = behind(pattern, i) {
		switch c := pattern[i]; {
		case c == '{':
			if depth++; depth == 1 {
				open = i
			}
		case c == ',' && depth == 1:
			ends = append(ends, i)
		case c == '}':
			if depth--; depth > 0 {
				continue
			}
			start := open + 1
			for _, end := range append(ends, i) {
				if len(all) <= maxAlternatives {
					all = alternatives(all, pattern[:open]+pattern[start:end]+pattern[i+1:])
				}
				start = end + 1
			}
			return all
		}
	}
	return append(all, pattern)
}

// behind returns the index after the byte, the escaped byte or the [class] at
// i. The pattern must be well-formed.
func behind(pattern string, i int) int {
	switch pattern[i] {
	case '\\':
		return i + 2
	case '[':
		if i++; pattern[i] == '!' || pattern[i] == '^' {
			i++
		}
		for ; pattern[i] != ']'; i++ {
			if pattern[i] == '\\' {
				i++
			}
		}
	}
	return i + 1
}

// match reports whether g matches the whole path rel.
//
// Only the last ** is tried again with more names, since what precedes it has
// matched as early as possible.
func (g glob) match(rel string) bool {
	var again glob // what follows the last **
	var from string
	for {
		if len(g) > 0 && g[0].kind == partAny {
			if g = g[1:]; len(g) == 0 {
				return true
			}
			if len(g) == 1 {
				rel = rel[strings.LastIndexByte(rel, '/')+1:] // g is now about the last name alone
			}
			again, from = g, rel
			continue
		}
		if rel == "" {
			return len(g) == 0
		}
		name, rest, _ := strings.Cut(rel, "/")
		switch {
		case len(g) > 0 && g[0].matches(name):
			g, rel = g[1:], rest
		case again == nil:
			return false
		default:
			_, from, _ = strings.Cut(from, "/")
			g, rel = again, from
		}
	}
}

// reaches reports whether a path below the directory rel could match.
func (g glob) reaches(rel string) bool {
	for rel != "" && len(g) > 0 && g[0].kind != partAny {
		var name string
		if name, rel, _ = strings.Cut(rel, "/"); !g[0].matches(name) {
			return false
		}
		g = g[1:]
	}
	return len(g) > 0
}
