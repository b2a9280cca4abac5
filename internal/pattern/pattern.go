// Package pattern matches slash-separated paths with the patterns of doublestar.
package pattern

import (
	"fmt"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// maxAlternatives is the maximum number of patterns to which the braces of one pattern may expand.
const maxAlternatives = 1 << 16

// A Glob is a pattern without braces, split at its slashes. Each part matches one
// name, and ** any number of names. So no part can match a slash, and Reaches, which
// prunes directories, agrees with Match.
type Glob []part

// A part is a pattern for one name, or, if it is **, for any number of names.
type part struct {
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

// Expand returns the globs to which pattern expands.
func Expand(pattern string) []Glob {
	var globs []Glob
	for _, p := range alternatives(nil, pattern) {
		var g Glob
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

func newPart(p string) part {
	if p == "**" {
		return part{kind: partAny}
	}
	var b strings.Builder
	last := ""
	for i := 0; i < len(p); i = behind(p, i) {
		this := p[i:behind(p, i)]
		if this != "*" || last != "*" { // doublestar may take two of several * for **
			b.WriteString(this)
		}
		last = this
	}
	p = b.String()
	const special = `*?[\`
	suffix, star := strings.CutPrefix(p, "*")
	switch {
	case strings.ContainsAny(suffix, special):
		return part{partGlob, p}
	case star:
		return part{partSuffix, suffix}
	}
	return part{partName, p}
}

func (p part) matches(name string) bool {
	switch p.kind {
	case partName:
		return name == p.text
	case partSuffix:
		return strings.HasSuffix(name, p.text)
	}
	return doublestar.MatchUnvalidated(p.text, name)
}

// alternatives appends the patterns to which pattern expands, one for each
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

// Match reports whether g matches the whole path rel.
//
// Match tries only the last ** again with more names, since the parts before it have
// matched as early as possible.
func (g Glob) Match(rel string) bool {
	var again Glob // what follows the last **
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

// Reaches reports whether g may match a path below the directory rel.
func (g Glob) Reaches(rel string) bool {
	for rel != "" && len(g) > 0 && g[0].kind != partAny {
		var name string
		if name, rel, _ = strings.Cut(rel, "/"); !g[0].matches(name) {
			return false
		}
		g = g[1:]
	}
	return len(g) > 0
}

// Invalid returns why the pattern p can never match, or "".
func Invalid(p string) string {
	switch {
	case p == "":
		return "is empty"
	case !doublestar.ValidatePattern(p):
		return "is malformed"
	case len(alternatives(nil, p)) > maxAlternatives:
		return fmt.Sprintf("has braces that expand to more than %d patterns", maxAlternatives)
	case p[0] == '/':
		return "begins with a slash: paths are relative to root"
	case p[len(p)-1] == '/':
		return fmt.Sprintf("ends with a slash: no path does, and %q matches all that is in such a directory", p+"**")
	case p[0] == '!':
		return fmt.Sprintf("begins with an exclamation mark: it negates nothing here, and %q matches a name that begins with it", `\\`+p)
	}
	for level := range strings.SplitSeq(p, "/") {
		if level == "." || level == ".." || level == "" {
			return fmt.Sprintf("has the part %q, which no path relative to root contains", level)
		}
	}
	return ""
}
