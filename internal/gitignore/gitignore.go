// Package gitignore tells which paths an ignore file ignores, exactly as git
// does. It reads no files.
//
// What git's manual does not say, and git does, was found by comparison: see
// docs/ignore-files.md. Case matters, as with git's core.ignoreCase false.
package gitignore

import (
	"bytes"
	"strings"
)

// A Verdict is what an ignore file says of an entry.
type Verdict int8

const (
	Undecided Verdict = iota // no pattern matches
	Ignored
	Included // a pattern that begins with "!" matches
)

// A Chain is the lists that apply in a directory, the one that counts most
// first. The nil Chain is empty. A Chain does not change, so that directories
// may share it, and may be used by several goroutines.
type Chain struct {
	list   *List
	base   int    // length of the list's dir
	above  string // see PushAbove
	parent *Chain
}

// Push returns a chain in which l, an ignore file of directory dir, counts
// more than all of c. For dir see Match.
func (c *Chain) Push(dir string, l *List) *Chain {
	if l == nil {
		return c
	}
	return &Chain{list: l, base: len(dir), parent: c}
}

// PushAbove is Push for an ignore file of a directory above the one where the
// walk began, whose path relative to it is above, with a slash at its end.
func (c *Chain) PushAbove(above string, l *List) *Chain {
	if l == nil {
		return c
	}
	return &Chain{list: l, above: above, parent: c}
}

// Match judges the entry name of directory dir: a path below the directories
// of all lists, with slashes between components and one at the end, or "" for
// the directory where the walk began. What is in an ignored directory is
// ignored: it is for the caller not to go there. A symbolic link is not a
// directory.
func (c *Chain) Match(dir, name string, isDir bool) Verdict {
	for ; c != nil; c = c.parent {
		if v := c.list.match(c.above, dir[c.base:], name, isDir); v != Undecided {
			return v
		}
	}
	return Undecided
}

// A List is the patterns of one ignore file. It does not change.
type List struct {
	patterns []pattern
}

// Parse returns the patterns of an ignore file, or nil if there are none.
func Parse(content []byte) *List {
	var patterns []pattern
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	for line := range bytes.Lines(content) {
		if line[0] == '#' {
			continue
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		line, _, _ = bytes.Cut(line, []byte{0}) // where a C string ends
		if p, ok := parse(trimSpaces(string(line))); ok {
			patterns = append(patterns, p)
		}
	}
	if patterns == nil {
		return nil
	}
	return &List{patterns}
}

// Match judges the entry name of directory dir, which is relative to the
// ignore file's directory: "" or a path with a slash at its end.
func (l *List) Match(dir, name string, isDir bool) Verdict {
	return l.match("", dir, name, isDir)
}

// match is Match of what is in directory above+dir.
func (l *List) match(above, dir, name string, isDir bool) Verdict {
	last := name[len(name)-1]
	for i := len(l.patterns) - 1; i >= 0; i-- { // the last one that matches counts
		p := &l.patterns[i]
		if p.hasLast && p.last != last || p.dirOnly && !isDir {
			continue
		}
		if above != "" && p.asksDir() { // few patterns do, and of these few come here
			above, dir = "", above+dir
		}
		if !p.match(dir, name) {
			continue
		}
		if p.negated {
			return Included
		}
		return Ignored
	}
	return Undecided
}

// trimSpaces removes trailing spaces but for one behind a backslash.
func trimSpaces(line string) string {
	trimmed := strings.TrimRight(line, " ")
	backslashes := len(trimmed) - len(strings.TrimRight(trimmed, `\`))
	if backslashes%2 == 1 && len(trimmed) < len(line) {
		return line[:len(trimmed)+1]
	}
	return trimmed
}

type kind uint8

const (
	kindName     kind = iota // foo
	kindSuffix               // *foo
	kindNameGlob             // f?o
	kindPath                 // foo/bar
	kindGlob                 // foo/b?r
)

// A pattern is one line of an ignore file.
type pattern struct {
	kind    kind
	negated bool
	dirOnly bool
	hasLast bool
	last    byte   // of all names that can match, if hasLast: most others need no more than a look at it
	dir     string // what a path begins with, as far as a slash
	name    string // what follows there literally; of kindSuffix, what a name ends with
	glob    glob   // what follows then
}

// parse returns the pattern of a line, unless it can match nothing.
func parse(line string) (p pattern, ok bool) {
	line, p.negated = strings.CutPrefix(line, "!")
	line, p.dirOnly = strings.CutSuffix(line, "/")
	isPath := strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if rest, found := strings.CutPrefix(line, "**/"); found && !strings.Contains(rest, "/") {
		line, isPath = rest, false // the same, and faster
	}
	if line == "" {
		return p, false
	}
	literal := line[:literalPrefix(line)]
	wild := line[len(literal):]
	slash := strings.LastIndexByte(literal, '/') + 1
	p.dir, p.name = literal[:slash], literal[slash:]
	switch {
	case wild == "" && !isPath:
		p.kind = kindName
	case wild == "":
		p.kind = kindPath
	case !isPath && line[0] == '*' && literalPrefix(line[1:]) == len(line)-1:
		p.kind, p.name = kindSuffix, line[1:]
	default:
		// A ** where the literal part ends is the first of what is matched as
		// a glob, so that to git foo/bar**/x is foo/bar followed by **/x.
		p.kind = kindGlob
		if p.glob, ok = compile(wild); !ok {
			return p, false
		}
		if !isPath {
			p.kind = kindNameGlob
		}
		if end := p.glob[len(p.glob)-1]; end.op == opByte {
			p.hasLast, p.last = true, end.lit
		}
		return p, true
	}
	if p.name != "" {
		p.hasLast, p.last = true, p.name[len(p.name)-1]
	}
	return p, true
}

// literalPrefix returns how many bytes of s come before anything special.
func literalPrefix(s string) int {
	if i := strings.IndexAny(s, `*?[\`); i >= 0 {
		return i
	}
	return len(s)
}

// asksDir reports whether it matters in which directory an entry is.
func (p *pattern) asksDir() bool { return p.kind == kindPath || p.kind == kindGlob }

func (p *pattern) match(dir, name string) bool {
	switch p.kind {
	case kindName:
		return name == p.name
	case kindSuffix:
		return strings.HasSuffix(name, p.name)
	case kindPath:
		return name == p.name && dir == p.dir
	case kindNameGlob:
		dir = "" // wherever it is
	default:
		if !strings.HasPrefix(dir, p.dir) {
			return false
		}
		dir = dir[len(p.dir):]
	}
	t := path{dir, name}
	if len(p.name) > t.len() {
		return false
	}
	for i := range len(p.name) {
		if t.at(i) != p.name[i] {
			return false
		}
	}
	return p.glob.match(t.from(len(p.name)))
}
