package testtree

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// An IgnoreGenerator makes trees with few names and patterns of few bytes, so that patterns often match.
type IgnoreGenerator struct{ *rand.Rand }

func pick[T any](g IgnoreGenerator, from ...T) T { return from[g.IntN(len(from))] }

func (g IgnoreGenerator) times(max int, f func() string) string {
	var b strings.Builder
	for range g.IntN(max + 1) {
		b.WriteString(f())
	}
	return b.String()
}

func (g IgnoreGenerator) name() string {
	if g.IntN(3) == 0 {
		return pick(g, "#a", "!a", " ", "a ", "a b", "\\", "a\\", "*", "**", "?", "[a]", "[", "]", "-", "^", "é", "\xff",
			"\xc3", "\r", "a\r", "\n", "\t", "\x01", "\xef\xbb\xbfa", "~", ".a", "a.b", "b.a", "..a", "A", "aA", "1", "{a}", ":")
	}
	return pick(g, "a", "b", "c") + g.times(2, func() string { return pick(g, "a", "b", "a.b", "ab") })
}

// component returns a random part of a pattern, as it stands between slashes.
func (g IgnoreGenerator) component() string {
	switch g.IntN(4) {
	case 0:
		return pick(g, "*", "**", "***", "*.b", "*a", "a*", "?", "a", "b", "c", "", "aa", "a.b", ".*", "[a-c]", "[!a]", "\\a")
	case 1:
		return g.name()
	}
	return pick(g, "", "a", "b") + g.times(3, func() string {
		return pick(g, "a", "b", "c", "*", "**", "?", ".b", "[ab]", "[!a]", "[^b-z]", "[]a]", "[!]a]", "[a-]", "[[:alpha:]]",
			"[[:punct:]b]", "[[:", "[a", "]", "\\", "\\a", "\\*", "\\?", "\\[", "\\]", "\\/", "[/]", "[a/b]", "[\\]a]", "[\\a-c]", " ", "\\ ",
			"[a-\\c]", "[c-a]", "é", "\xff", "?\xa9", "\r", "\x00", "[\x80-\xff]", "{a,b}", "[:a]", "[[a]", "[[:]", "a*a*a*", "#", "!")
	})
}

// like returns a pattern that resembles a name.
func (g IgnoreGenerator) like(name string) string {
	if name == "" {
		return ""
	}
	i := g.IntN(len(name))
	head, c, tail := name[:i], name[i:i+1], name[i+1:]
	return pick(g, name, name, name, "*", "**", "*"+tail, head+"*", head+"**", "**"+tail, head+"?"+tail, head+"["+c+"]"+tail,
		head+"[!"+c+"]"+tail, head+"[a-z]"+tail, head+"\\"+c+tail, head+"*"+c+tail, head+c+"*"+tail, "*"+c+"*", g.component())
}

// pattern returns a pattern that often matches one of paths.
func (g IgnoreGenerator) pattern(paths []string) string {
	before := pick(g, "", "", "", "!", "!", "!!", "\\!", "#", "\\#", "!\\#", " ")
	after := pick(g, "", "", "", "", "", "/", "/", "//", "/**", " ", "  ", "\\ ", "\\  ", "\\\\ ", "\\", "\t", "/ ")
	if len(paths) == 0 || g.IntN(4) == 0 {
		p := g.component()
		for g.IntN(2) == 0 {
			p += pick(g, "/", "/", "/", "/", "/**/", "//", "/*/", "**/", "\\/") + g.component()
		}
		return before + pick(g, "", "", "", "/", "//", "**/", "/**/") + p + after
	}
	if g.IntN(2) == 0 { // otherwise it would rarely match
		after = pick(g, "", "", "/")
	}
	path := strings.Split(pick(g, paths...), "/")
	path = path[:1+g.IntN(len(path))]
	if g.IntN(3) == 0 {
		return pick(g, "", "", "!", "**/") + g.like(path[len(path)-1]) + after
	}
	p := pick(g, "", "", "", "!", "!", "!!") + pick(g, "", "/", "/", "**/", "*")
	for i, name := range path {
		if i > 0 {
			p += pick(g, "/", "/", "/", "/", "/", "/**/", "**/", "\\/")
		}
		p += g.like(name)
	}
	return p + after
}

// Ignore returns an ignore file for a directory that contains paths.
func (g IgnoreGenerator) Ignore(paths []string) string {
	s := pick(g, "", "", "", "", "\xef\xbb\xbf", "\n", "\r\n", "\xfe\xff")
	for range 1 + g.IntN(5) {
		s += g.pattern(paths) + pick(g, "\n", "\n", "\n", "\r\n", "\n\n", "\r\r\n")
	}
	return strings.TrimSuffix(s, pick(g, "\n", "x", "x", "x"))
}

// fill adds random files and directories in dir to tree, and returns their paths relative to dir.
func (g IgnoreGenerator) fill(tree map[string]string, dir string, depth int) (paths []string) {
	for range 2 + g.IntN(4) {
		name := g.name()
		if slices.Contains(paths, name) {
			continue
		}
		paths = append(paths, name)
		if depth == 4 || g.IntN(2) == 0 {
			tree[dir+name] = ""
			continue
		}
		for _, below := range g.fill(tree, dir+name+"/", depth+1) {
			paths = append(paths, name+"/"+below)
		}
	}
	if depth == 1 || g.IntN(4) == 0 {
		tree[dir+".gitignore"] = g.Ignore(paths)
	}
	return paths
}

// OtherCase returns s with some letters of ASCII in the other case.
func (g IgnoreGenerator) OtherCase(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c |= 0x20; 'a' <= c && c <= 'z' && g.IntN(4) == 0 {
			b[i] ^= 0x20
		}
	}
	return string(b)
}

// Tree returns a random tree as a map from paths to contents. Some of the files are ignore files named .gitignore.
func (g IgnoreGenerator) Tree() map[string]string {
	tree := map[string]string{}
	g.fill(tree, "", 1)
	return tree
}
