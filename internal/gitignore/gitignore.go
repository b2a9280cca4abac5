// Package gitignore decides which paths an ignore file ignores, exactly as git
// does. It reads no files.
//
// Where git's manual is silent, the package does what comparisons with git have shown: see
// docs/ignore-files.md.
package gitignore

import (
	"bytes"
	"slices"
	"strings"
)

// A Verdict is the decision of an ignore file about an entry.
type Verdict int8

const (
	Undecided Verdict = iota // no pattern matches
	Ignored
	Included // a pattern that begins with "!" matches
)

// A Chain holds the lists that apply in a directory, in descending precedence.
// The nil Chain is empty. A Chain is immutable: directories may share it, and
// several goroutines may use it at once.
type Chain struct {
	list   *List
	base   int    // length of the list's dir
	above  string // see PushAbove
	parent *Chain
	ofRepo bool // list belongs to the repository
	all    bool // see IgnoreAll
	repo   any  // of NewRepository; nil: the chain is not for directories of a git repository
	folds  bool // of NewRepository
	rank   int  // see PushRanked
}

// NewRepository returns a chain for the top of a git repository, which repo stands for. The chain leaves
// out the lists of a repository that contains this one, and ignores .git; also .GIT, if folds says that it has core.ignoreCase.
func (c *Chain) NewRepository(repo any, folds bool) *Chain {
	var kept []Chain
	for ; c != nil; c = c.parent {
		if !c.ofRepo {
			kept = append(kept, *c)
		}
	}
	top := &Chain{list: &List{}, ofRepo: true, repo: repo, folds: folds}
	for _, k := range slices.Backward(kept) {
		top = top.push(k)
	}
	return top
}

// Repository returns what NewRepository got for a chain from which this one derives, or nil.
func (c *Chain) Repository() any {
	if c == nil {
		return nil
	}
	return c.repo
}

// IgnoreAll returns a chain for a directory that a list of the repository ignores, and so all that
// is in it.
func (c *Chain) IgnoreAll() *Chain {
	top := *c
	top.all = true
	return &top
}

// IgnoresAll reports whether the chain derives from one of IgnoreAll.
func (c *Chain) IgnoresAll() bool { return c != nil && c.all }

func (c *Chain) push(next Chain) *Chain {
	if next.list == nil {
		return c
	}
	if c != nil && c.rank > next.rank {
		top := *c
		top.parent = c.parent.push(next)
		return &top
	}
	if next.parent = c; c != nil {
		next.repo, next.folds, next.all = c.repo, c.folds, c.all
	}
	return &next
}

// PushRanked is PushOfRepository or, unless ofRepo is set, PushAbove for dir. The list takes precedence
// over the lists of the same rank and of lower ranks. The other methods push lists of rank 0.
func (c *Chain) PushRanked(rank int, above, dir string, ofRepo bool, l *List) *Chain {
	return c.push(Chain{list: l, base: len(dir), above: above, ofRepo: ofRepo, rank: rank})
}

// PushOfRepository is PushAbove, or Push for dir if above is "", for a list that applies in one
// repository only: NewRepository leaves the list out.
func (c *Chain) PushOfRepository(above, dir string, l *List) *Chain {
	return c.push(Chain{list: l, base: len(dir), above: above, ofRepo: true})
}

// Push returns a chain in which l, an ignore file of directory dir, takes
// precedence over all of c. For dir see Match.
func (c *Chain) Push(dir string, l *List) *Chain {
	return c.push(Chain{list: l, base: len(dir)})
}

// PushAbove is Push for an ignore file of a directory above the one where the
// walk began. The path above leads from the file's directory to the walk's, and ends with
// a slash.
func (c *Chain) PushAbove(above string, l *List) *Chain {
	return c.push(Chain{list: l, above: above})
}

// Match returns the verdict on the entry name of directory dir. dir is a path
// below the directories of all lists, with slashes between components and a slash at
// the end, or "" for the directory where the walk began. The contents of an
// ignored directory are ignored too, so the caller must not enter it. A symbolic
// link is not a directory.
func (c *Chain) Match(dir, name string, isDir bool) Verdict {
	v, _ := c.Decide(dir, name, isDir)
	return v
}

// Decide is Match, and reports whether a list of the repository has decided. These lists ignore
// nothing that git tracks: then MatchOthers has the verdict.
func (c *Chain) Decide(dir, name string, isDir bool) (v Verdict, ofRepo bool) {
	if len(name) == len(".git") && c.Repository() != nil && (name == ".git" || c.folds && strings.EqualFold(name, ".git")) {
		return Ignored, false
	}
	if c.IgnoresAll() {
		return Ignored, true
	}
	for ; c != nil; c = c.parent {
		if v := c.list.match(c.above, dir[c.base:], name, isDir); v != Undecided {
			return v, c.ofRepo
		}
	}
	return Undecided, false
}

// MatchOthers is Match for the lists that do not belong to the repository.
func (c *Chain) MatchOthers(dir, name string, isDir bool) Verdict {
	for ; c != nil; c = c.parent {
		if c.ofRepo {
			continue
		}
		if v := c.list.match(c.above, dir[c.base:], name, isDir); v != Undecided {
			return v
		}
	}
	return Undecided
}

// A List holds the patterns of one ignore file. It is immutable.
type List struct {
	patterns []pattern
	folds    bool
}

// Parse returns the patterns of an ignore file, or nil if there are none. Case matters.
func Parse(content []byte) *List { return ParseAs(content, false) }

// ParseAs is Parse for a repository with this value of core.ignoreCase. As in git, only ASCII letters have a case.
func ParseAs(content []byte, ignoresCase bool) *List {
	var patterns []pattern
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	for line := range bytes.Lines(content) {
		if line[0] == '#' {
			continue
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		line, _, _ = bytes.Cut(line, []byte{0}) // git's lines are C strings
		if p, ok := parse(trimSpaces(string(line)), ignoresCase); ok {
			patterns = append(patterns, p)
		}
	}
	if patterns == nil {
		return nil
	}
	return &List{patterns, ignoresCase}
}

// Match returns the verdict on the entry name of directory dir, which is relative
// to the ignore file's directory: "" or a path with a slash at its end.
func (l *List) Match(dir, name string, isDir bool) Verdict {
	return l.match("", dir, name, isDir)
}

// match is Match for an entry of directory above+dir.
func (l *List) match(above, dir, name string, isDir bool) Verdict {
	last := name[len(name)-1]
	if l.folds {
		last = lower(last)
	}
	for i := len(l.patterns) - 1; i >= 0; i-- { // the last match counts
		p := &l.patterns[i]
		if p.hasLast && p.last != last || p.dirOnly && !isDir {
			continue
		}
		if above != "" && p.needsDir() { // rare, so the path is joined only here
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

// trimSpaces removes trailing spaces, except one that a backslash escapes.
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
	folds   bool // the literals are in lower case, and match in any
	hasLast bool
	last    byte   // if hasLast, the last byte of every name that can match, which rules out most other names at once
	dir     string // the literal beginning of a path, up to its last slash
	name    string // the literal text after dir; with kindSuffix, the end of a name
	glob    glob   // the rest
}

// parse returns the pattern of a line. ok is false if it can match nothing.
func parse(line string, folds bool) (p pattern, ok bool) {
	p.folds = folds
	line, p.negated = strings.CutPrefix(line, "!")
	line, p.dirOnly = strings.CutSuffix(line, "/")
	isPath := strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if rest, found := strings.CutPrefix(line, "**/"); found && !strings.Contains(rest, "/") {
		line, isPath = rest, false // **/rest means the same as rest, which is faster
	}
	if line == "" {
		return p, false
	}
	literal := line[:literalPrefix(line)]
	wild := line[len(literal):]
	slash := strings.LastIndexByte(literal, '/') + 1
	if folds {
		literal = toLower(literal)
	}
	p.dir, p.name = literal[:slash], literal[slash:]
	switch {
	case wild == "" && !isPath:
		p.kind = kindName
	case wild == "":
		p.kind = kindPath
	case !isPath && line[0] == '*' && literalPrefix(line[1:]) == len(line)-1:
		p.kind, p.name = kindSuffix, line[1:]
		if folds {
			p.name = toLower(p.name)
		}
	default:
		// A ** after the literal part is at the beginning of the glob, so git
		// takes foo/bar**/x for foo/bar followed by **/x.
		p.kind = kindGlob
		if p.glob, ok = compile(wild, folds); !ok {
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

// needsDir reports whether a match depends on the directory of an entry.
func (p *pattern) needsDir() bool { return p.kind == kindPath || p.kind == kindGlob }

func (p *pattern) match(dir, name string) bool {
	switch p.kind {
	case kindName:
		return p.equal(name, p.name)
	case kindSuffix:
		return len(name) >= len(p.name) && p.equal(name[len(name)-len(p.name):], p.name)
	case kindPath:
		return p.equal(name, p.name) && p.equal(dir, p.dir)
	case kindNameGlob:
		dir = "" // in any directory
	default:
		if len(dir) < len(p.dir) || !p.equal(dir[:len(p.dir)], p.dir) {
			return false
		}
		dir = dir[len(p.dir):]
	}
	t := path{dir, name, p.folds}
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

// equal reports whether s is literal, which is in lower case if the pattern folds.
func (p *pattern) equal(s, literal string) bool {
	if !p.folds || len(s) != len(literal) {
		return s == literal
	}
	for i := range len(s) {
		if lower(s[i]) != literal[i] {
			return false
		}
	}
	return true
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		b += 'a' - 'A'
	}
	return b
}

func toLower(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] = lower(b[i])
	}
	return string(b)
}
