package gitignore

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A testCase lists the files that an ignore file ignores and those that it keeps.
type testCase struct {
	name, ignore string
	ignored      []string
	keeps        []string
}

func files(f ...string) []string { return f }

var cases = []testCase{
	{"no pattern", "\n\n# a\n \n\r\n!\n/\n//\n!/\n", nil, files("a", "#", " ", "\r", "b/a")},
	{"name", "a", files("a", "b/a", "c/a/x"), files("aa", "b/ab", "A")},
	{"suffix", "*.o", files("x.o", ".o", "d/y.o", "e.o/x"), files("x.oo", "o")},
	{"prefix", "a*", files("a", "ab", "d/a.b"), files("ba")},
	{"last pattern counts", "*\n!b\n!c\nc", files("a", "c", ".x", ".gitignore"), files("b")},
	{"negated", "*.a\n!x.a\n", files("y.a", "d/y.a"), files("x.a", "d/x.a")},
	{"no pattern includes files of an ignored directory", "d\n!d/x\n!x\n", files("d/x", "e/d/x"), files("x")},
	{"a file in a directory is included again", "d/*\n!d/x\n", files("d/y", "d/e/x"), files("d/x", "e/d/y")},
	{"all but a directory", "/*\n!/.gitignore\n!/d\n/d/*\n!/d/e\n", files("x", "d/x", "f/e/x"), files("d/e/x", "d/e/f/y")},
	{"two exclamation marks", "*\n!.gitignore\n!!a", files("a"), files("!a")},
	{"directory", "d/", files("d/x", "e/d/x"), files("f/d")},
	{"negated directory", "d*\n!d/\n", files("e/d"), files("d/x")},
	{"anchored", "/a", files("a"), files("b/a")},
	{"anchored directory", "/a/", files("a/x"), files("b/a/x")},
	{"anchored by a slash inside", "a/b", files("a/b"), files("c/a/b", "b")},
	{"anchored suffix", "/*.c", files("x.c"), files("d/x.c")},
	{"path and directory", "a/b/", files("a/b/x"), files("c/a/b/x", "b/x")},
	{"star and slash", "a/*/b", files("a/x/b"), files("a/b", "a/x/y/b", "c/a/x/b")},
	{"star does not match slashes", "/a*c", files("abc", "ac/b"), files("ab/c")},
	{"question mark does not match slashes", "a?b/x", files("a-b/x"), files("a/b/x", "ab/x")},
	{"set does not match slashes", "a[/]b\nc[!x]d\ne[.-1]f", files("cyd"), files("a/b", "c/d", "e/f", "a[/]b")},
	{"two slashes", "a//b\n//c\nd//", nil, files("a/b", "c", "d/x")},
	{"two stars first", "**/a", files("a", "b/a", "b/c/a"), files("ab", "xa")},
	{"two stars first, path", "**/a/b", files("a/b", "x/a/b", "x/y/a/b/c"), files("a/c/b", "xa/b")},
	{"two stars last", "a/**", files("a/b", "a/c/d"), files("b", "c/a/b")},
	{"two stars last, directory", "a/**/", files("a/c/d"), files("a/b", "c/a/b/d")},
	{"two stars between", "a/**/b", files("a/b", "a/x/b", "a/x/y/b"), files("ab", "a/xb", "c/a/b")},
	{"two stars twice", "a/**/b/**/c", files("a/b/c", "a/x/b/y/z/c", "a/b/b/c"), files("a/c", "a/x/c")},
	{"two stars with a star later", "**/a*b/c", files("ab/c", "x/axb/c", "a/ab/c"), files("a/b/c", "ab/x/c")},
	{"two stars alone", "**", files("a", "b/c", ".gitignore"), nil},
	{"two stars and a directory", "**/", files("b/c"), files("a")},
	{"three stars", "***/a\nb/***/c", files("a", "x/a", "b/c", "b/x/y/c"), files("ba", "bc")},
	{"two stars within a name", "**a\nb**c\n/d**", files("a", "xa", "bc", "bxc", "y/bc", "d", "dx/y"), files("ax", "b/c", "y/dx")},
	// A literal beginning, then a ** at the beginning of the glob.
	{"two stars behind a literal beginning", "d/a**\ne/a**/b", files("d/a", "d/ab/c", "e/ab", "e/a/b", "e/ax/y/b"),
		files("d/ba", "e/a/c", "e/axc")},
	{"two stars behind a wildcard", "d/?a**/b", files("d/xa/b", "d/xay/b"), files("d/xa/y/b", "d/xab")},
	{"two stars before an escaped slash", "**\\/b\na/**\\/c", files("x/b", "x/y/b", "a/x/c"), files("b", "a/c")},
	{"two stars and two slashes", "d/a**//\n**//", files("d/a/x"), files("d/ab/x", "b/x")},
	{"escaped slash", "a\\/b\nc\\/", files("a/b"), files("x/a/b", "c/x")},
	{"hash", "\\#a\n#b\n #c\nd#e", files("#a", " #c", "d#e"), files("#b", "b", "c")},
	{"exclamation mark", "\\!a\nb!", files("!a", "b!"), files("a", "b")},
	{"trailing spaces", "a  \nb\\ \nc\\  \nd\\\\ \n\\e \nf/ \n", files("a", "b ", "c ", "d\\", "e", "f/x"), files("a ", "b", "c", "c  ", "d", "d ")},
	{"escaped and other trailing spaces", "a\\ \\ \nb \\ \nc\\ d  \n", files("a  ", "b  ", "c d"), files("a ", "b ", "c d ")},
	{"leading spaces and tabs", " a\nb\t\n", files(" a", "b\t"), files("a", "b")},
	{"backslash", "\\a\n\\*\nb\\\\c\nd\\\ne\\?\n\\[f]", files("a", "*", "b\\c", "e?", "[f]"), files("x", "bc", "d", "d\\", "ex", "f")},
	{"CRLF", "a\r\nb\r\r\nc\rd\r\ne\r", files("a", "b\r", "c\rd", "e"), files("a\r", "b", "e\r")},
	{"CRLF and spaces", "a \r\nb\\ \r\n", files("a", "b "), files("a ", "b")},
	{"byte order mark", "\ufeffa\n\ufeffb", files("a", "\ufeffb"), files("\ufeffa", "b")},
	{"byte order mark and comment", "\ufeff#a\n\ufeff#b", files("\ufeff#b"), files("#a", "#b")},
	{"NUL", "a\x00b\n\x00c\nd \x00", files("a", "d"), files("ab", "b", "c", "d ")},
	{"set", "[ab]\n[d-f]x\n[^a-y]z\n[!a]q", files("a", "b", "dx", "ex", "fx", "zz", "^z", "bq", "!q"), files("c", "gx", "az", "aq")},
	{"set with brackets", "[]a]\n[!]b]x\n[[c]y", files("]", "a", "cx", "[y", "cy"), files("b", "]x", "bx", "dy")},
	{"set with minus", "[-a]\n[b-]x\n[+--]y\n[a-c-e]z", files("-", "a", "bx", "-x", ",y", "bz", "-z", "ez"), files("b", "cx", ".y", "dz")},
	{"set with backslash", "[\\]a]\n[a\\-c]x\n[\\a-\\c]y\n[\\\\]z", files("]", "a", "-x", "ax", "by", "\\z"), files("\\", "bx", "\\y", "z")},
	{"set reversed", "[c-a]", files("c"), files("a", "b", "-")},
	{"set not closed", "[a\na[\n[\n[]\n[!]\n[a\\]\nb[c\n*[", nil, files("[a", "a[", "[", "[]", "a", "b[c", "[!]", "x")},
	{"closing bracket alone", "a]", files("a]"), files("a")},
	{"class", "[[:digit:]]\n[^[:alpha:]]x\n[[:upper:]b]y", files("0", "1x", "by", "By"), files("a", "ax", "cy", ":")},
	{"unknown class", "[[:x:]]\n[[:Alpha:]]\n[[:alpha:]\n[[::]]", nil, files("x", "a", ":", "[")},
	{"no class", "[[:ab]\n[[:]x\n[a:]y", files("[", ":", "a", "[x", ":x", ":y"), files("c", "x", "y")},
	{"class at the end of a range", "[a-[:digit:]]", nil, files("b", "1", "a")},
	{"bytes", "?\n[é]x\n\xff\n[\x80-\xff]y", files("a", "\xff", "\xc3x", "\xa9x", "\x80y"), files("é", "éx", "ay", "éy")},
	{"case", "ABC\n*.X", files("ABC", "a.X"), files("abc", "a.x")},
	{"hidden", "*a\n?b", files(".a", ".b"), files("a.", "b")},
	{"braces are not special", "{a,b}", files("{a,b}"), files("a", "b")},
}

func (c testCase) kept() []string {
	kept := append([]string{}, c.keeps...)
	if !slices.Contains(c.ignored, ".gitignore") {
		kept = append(kept, ".gitignore")
	}
	slices.Sort(kept)
	return kept
}

func (c testCase) tree() map[string]string {
	tree := map[string]string{}
	for _, f := range slices.Concat(c.ignored, c.keeps) {
		tree[f] = ""
	}
	tree[".gitignore"] = c.ignore
	return tree
}

func TestCases(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.kept(), kept(slices.Collect(maps.Keys(c.tree())), c.tree()))
		})
	}
}

func TestParseNothing(t *testing.T) {
	for _, content := range []string{"", "\n\n", "# a", "!", "/", "//", "!/\n \n", "\ufeff", "\x00a", "[a", "a[b/", "a\\"} {
		require.Nil(t, Parse([]byte(content)), "%q", content)
	}
}

func TestChain(t *testing.T) {
	list := func(content string) *List { return Parse([]byte(content)) }
	above := (*Chain)(nil).Push("", list("*.x\n/a/*.y\n!*.z"))
	root := above.Push("", list("!k.x\n*.z")) // a later ignore file of the same directory
	a := root.Push("a/", list("/b/*.v\n!c.y"))
	require.Same(t, a, a.Push("a/", nil), "no patterns, no link")
	require.Same(t, a, a.PushAbove("a/", nil), "no patterns, no link")
	higher := (*Chain)(nil).PushAbove("o/p/", list("/o/p/q\n/r\no/*/b/c.x\n*.y\n!p/k.y\n/o/p/b/d/"))
	for _, c := range []struct {
		chain     *Chain
		dir, name string
		want      Verdict
	}{
		{nil, "", "a.x", Undecided},
		{above, "", "k.x", Ignored},
		{above, "", "k.z", Included},
		{root, "", "a.x", Ignored},
		{root, "", "k.x", Included},
		{root, "", "k.z", Ignored},
		{higher, "", "q", Ignored},
		{higher, "", "r", Undecided},
		{higher, "o/p/", "q", Undecided},
		{higher, "b/", "c.x", Ignored},
		{higher, "b/", "d", Undecided},
		{higher, "b/", "k.y", Ignored},
		{higher.Push("", list("!c.x")), "b/", "c.x", Included},
		{a, "a/", "a.x", Ignored},
		{a, "a/", "k.x", Included},
		{a, "a/", "b.y", Ignored},
		{a, "a/", "c.y", Included},
		{a, "a/", "a.v", Undecided},
		{a, "a/b/", "a.v", Ignored},
		{a, "a/b/", "b.y", Undecided},
	} {
		require.Equal(t, c.want, c.chain.Match(c.dir, c.name, false), "%s%s", c.dir, c.name)
	}
}

// TestBoundedTime would take forever if each * doubled the time.
func TestBoundedTime(t *testing.T) {
	long, deep := strings.Repeat("a", 255), strings.Repeat("a/", 2000)
	for _, pattern := range []string{
		strings.Repeat("*a", 100) + "*b",
		strings.Repeat("*", 100_000) + "b?",
		strings.Repeat("*?", 100) + "b",
		strings.Repeat("[a-z]*", 100) + "[b]",
		"/" + strings.Repeat("**/", 500) + "b?",
		"/" + strings.Repeat("**/*a/", 500) + "b?",
		"/" + strings.Repeat("**/a*a*[a]*/", 300) + "b",
		strings.Repeat("x", 1_000_000),
		strings.Repeat("[", 1_000_000),
		strings.Repeat("[[:", 300_000),
		strings.Repeat("[a]", 100_000),
	} {
		l := Parse([]byte(pattern))
		if l == nil {
			continue
		}
		require.Equal(t, Undecided, l.Match("", long, true), "%.50q", pattern)
		require.Equal(t, Undecided, l.Match(deep, long, true), "%.50q", pattern)
	}
}

// usual is an ignore file with the usual kinds of patterns.
const usual = `*.o
*.a
*.so
*.exe
*.test
*.prof
*.py[cod]
*.swp
*~
.DS_Store
node_modules/
vendor/
build-*/
/dist
/bin/
docs/_build/
**/testdata/*.tmp
/generated/**
*.log
!keep.log
`

func TestMatchAllocatesNothing(t *testing.T) {
	chain := (*Chain)(nil).Push("", Parse([]byte(usual))).Push("a/", Parse([]byte(usual)))
	for _, name := range []string{"x.go", "x.o", "x.pyc", "build-1", "keep.log", "dist"} {
		require.Zero(t, testing.AllocsPerRun(100, func() { chain.Match("a/testdata/b/", name, true) }), name)
	}
}

func BenchmarkMatch(b *testing.B) {
	l := Parse([]byte(usual))
	for _, name := range []string{"entry_linux.go", "README.md", "x.pyc"} {
		b.Run("name="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.Match("internal/walk/", name, false)
			}
		})
	}
}

// FuzzMatch looks for panics, and compares verdicts that must agree.
func FuzzMatch(f *testing.F) {
	for _, c := range cases {
		for _, name := range slices.Concat(c.ignored, c.keeps) {
			f.Add([]byte(c.ignore), name, true)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, file string, isDir bool) {
		l := Parse(content)
		slash := strings.LastIndexByte(file, '/') + 1
		dir, name := file[:slash], file[slash:]
		if l == nil || name == "" {
			return
		}
		v := l.Match(dir, name, isDir)
		for i := range l.patterns {
			require.LessOrEqual(t, len(l.patterns[i].glob), len(content))
		}
		below := (*Chain)(nil).Push("d/e/", l)
		require.Equal(t, v, below.Match("d/e/"+dir, name, isDir), "in a directory below")
		negated := Parse(slices.Concat([]byte("*\n"), content))
		require.NotEqual(t, Undecided, negated.Match(dir, name, isDir), "after a *")
	})
}

// kept returns, sorted, the files that the ignore files of tree do not ignore. It
// matches each file by itself, from the top.
func kept(files []string, tree map[string]string) []string {
	lists := map[string]*List{}
	for name, content := range tree {
		if dir, found := strings.CutSuffix(name, ".gitignore"); found {
			lists[dir] = ParseAs([]byte(content), ignoresCase)
		}
	}
	ignored := func(file string) bool {
		var chain *Chain
		dir := ""
		for {
			chain = chain.Push(dir, lists[dir])
			name, _, isDir := strings.Cut(file[len(dir):], "/")
			if chain.Match(dir, name, isDir) == Ignored {
				return true
			}
			if !isDir {
				return false
			}
			dir += name + "/"
		}
	}
	kept := []string{}
	for _, f := range files {
		if !ignored(f) {
			kept = append(kept, f)
		}
	}
	slices.Sort(kept)
	return kept
}

// Lines on which git's own matching takes exponential time.
func TestCatastrophicLinesEnd(t *testing.T) {
	name, dir := strings.Repeat("a", 4000), strings.Repeat("a/", 1000)
	for _, line := range []string{
		strings.Repeat("*a", 60) + "*b",
		strings.Repeat("**/", 200) + strings.Repeat("*a", 60) + "*b",
		strings.Repeat("**/a/", 60) + "b",
		"/" + strings.Repeat("**/*a*/", 60) + "*b",
		strings.Repeat("*[!b]", 60) + "[b]",
		strings.Repeat("*?", 60) + "[b-z]",
	} {
		l := Parse([]byte(line))
		require.Equal(t, Undecided, l.Match("", name, false), "%.40q", line)
		require.Equal(t, Undecided, l.Match(dir, "a", false), "%.40q", line)
	}
}

// Parsing keeps a few times the bytes of an ignore file, whatever is in it.
func TestLargeIgnoreFiles(t *testing.T) {
	for what, content := range map[string]string{
		"many lines": strings.Repeat("some-name-*.x\n", 1<<17),
		"one line":   strings.Repeat("a", 2<<20),
		"stars":      strings.Repeat("*", 2<<20),
		"sets":       strings.Repeat("[a]", 1<<18),
		"no end":     strings.Repeat("[", 2<<20),
		"classes":    strings.Repeat("[[:", 1<<19),
		"NUL":        strings.Repeat("\x00", 2<<20),
		"NUL lines":  strings.Repeat("a\x00b\n", 1<<19),
	} {
		l := Parse([]byte(content))
		if what == "NUL" {
			require.Nil(t, l)
		} else if l != nil {
			l.Match("d/", "b", false)
		}
	}
}
