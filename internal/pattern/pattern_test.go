package pattern

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/stretchr/testify/require"
)

// A reference implements patterns in the plainest way. It shares nothing with Expand and takes exponential time.
type reference struct{ fold bool }

// units divides a pattern into its characters, escaped ones and classes.
func (reference) units(p string) (units []string) {
	for p != "" {
		_, n := utf8.DecodeRuneInString(p)
		switch p[0] {
		case '\\':
			_, n = utf8.DecodeRuneInString(p[1:])
			n++
		case '[':
			for n = 1; p[n] != ']'; n++ {
				if p[n] == '\\' {
					n++
				}
			}
			n++
		}
		units, p = append(units, p[:n]), p[n:]
	}
	return units
}

// expand resolves the first braces, and then those of the results.
func (r reference) expand(units []string) [][]string {
	first := slices.Index(units, "{")
	if first < 0 {
		return [][]string{units}
	}
	depth := 0
	begins := []int{first + 1}
	for i := first; ; i++ {
		switch units[i] {
		case "{":
			depth++
		case "}":
			depth--
		case ",":
			if depth == 1 {
				begins = append(begins, i+1)
			}
		}
		if depth > 0 {
			continue
		}
		var all [][]string
		for k, begin := range append(begins, i+1)[:len(begins)] {
			end := append(begins, i+1)[k+1] - 1
			all = append(all, r.expand(slices.Concat(units[:first], units[begin:end], units[i+1:]))...)
		}
		return all
	}
}

func (r reference) match(pattern, rel string) bool {
	return slices.ContainsFunc(r.expand(r.units(pattern)), func(units []string) bool {
		var parts [][]string
		part := []string{}
		for _, u := range append(units, "/") {
			if u == "/" || u == `\/` {
				parts, part = append(parts, part), []string{}
			} else {
				part = append(part, u)
			}
		}
		return r.path(parts, strings.Split(rel, "/"))
	})
}

func (r reference) path(parts [][]string, names []string) bool {
	switch {
	case len(parts) == 0:
		return len(names) == 0
	case slices.Equal(parts[0], []string{"*", "*"}):
		return r.path(parts[1:], names) || len(names) > 0 && r.path(parts, names[1:])
	}
	return len(names) > 0 && r.name(parts[0], names[0]) && r.path(parts[1:], names[1:])
}

func (r reference) name(units []string, name string) bool {
	if len(units) == 0 {
		return name == ""
	}
	first, n := utf8.DecodeRuneInString(name)
	unit := units[0]
	if unit == "*" && r.name(units[1:], name) {
		return true
	}
	if name == "" {
		return false
	}
	switch {
	case unit == "*":
		return r.name(units, name[n:])
	case unit == "?":
	case unit[0] == '[':
		if !r.class([]rune(unit[1:len(unit)-1]), first) {
			return false
		}
	case r.fold && strings.EqualFold(strings.TrimPrefix(unit, `\`), name[:n]):
	case strings.TrimPrefix(unit, `\`) != name[:n]:
		return false
	}
	return r.name(units[1:], name[n:])
}

func (r reference) class(members []rune, c rune) bool {
	negated := members[0] == '!' || members[0] == '^'
	if negated {
		members = members[1:]
	}
	next := func() (m rune) {
		if members[0] == '\\' {
			members = members[1:]
		}
		m, members = members[0], members[1:]
		return m
	}
	in := false
	for len(members) > 0 {
		low := next()
		high := low
		if len(members) > 1 && members[0] == '-' {
			members = members[1:]
			high = next()
		}
		has := func(c rune) bool { return c == low || low <= c && c <= high } // [c-a] has c, as in git
		in = in || has(c)
		for other := unicode.SimpleFold(c); r.fold && other != c; other = unicode.SimpleFold(other) {
			in = in || has(other)
		}
	}
	return in != negated
}

// matches reports what a run would.
func matches(pattern, rel string) bool {
	return slices.ContainsFunc(Expand(pattern), func(g Glob) bool { return g.Match(rel) })
}

func reaches(pattern, dir string) bool {
	return slices.ContainsFunc(Expand(pattern), func(g Glob) bool { return g.Reaches(dir) })
}

// checkPattern compares a pattern's matches with the reference, and with the pruning of directories.
func checkPattern(t require.TestingT, pattern, rel string) (matched bool) {
	want := reference{}.match(pattern, rel)
	require.Equal(t, want, matches(pattern, rel), "%q, %q", pattern, rel)
	for i := range rel {
		if rel[i] == '/' {
			require.True(t, !want || reaches(pattern, rel[:i]), "%q matches %q, but prunes %q", pattern, rel, rel[:i])
		}
	}
	return want
}

func isRel(s string) bool {
	return s != "" && !strings.Contains("/"+s+"/", "//") && !strings.ContainsRune(s, 0) && utf8.ValidString(s)
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

func join(r *rand.Rand, pieces []string) (s string) {
	for range 1 + r.IntN(6) {
		s += pick(r, pieces...)
	}
	return s
}

// patternPieces may follow one another in any order; invalid patterns are left out.
var patternPieces = []string{"a", "b", "x", "*", "?", "**", "/", "/**/", "**/", "/**", "{", "}", ",", "{a,b}", "{a,b/c}", "{,a}", "{*,a}", "{**,b}",
	`\a`, `\*`, `\/`, `\{`, "[ab]", "[!a]", "[^x]", "[,]", "[}]", "[/]", "[!/]", "[a/b]", "[a-b]", "[.-0]", "[/-a]", "[!x-]", "[-a]", `[\]a]`, `[!\]]`, "-", ".", "é", "[à-ü]"}

func TestPatternsAgainstReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	names := []string{"a", "b", "x", "c", "/", "/", ".", "-", "*", ",", "aa", "}", "]", "é"}
	asked, matched := 0, 0
	for range 150_000 {
		pattern, rel := join(r, patternPieces), join(r, names)
		if Invalid(pattern) != "" || !isRel(rel) {
			continue
		}
		asked++
		if checkPattern(t, pattern, rel) {
			matched++
		}
	}
	require.Greater(t, asked, 20_000)
	require.Greater(t, matched, asked/20)
}

// doublestar agrees wherever it follows its manual.
func TestPatternsAgainstDoublestar(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	parts := []string{"a", "b", "*", "?", "a*", "*b", "?a*", "{a,b}", "{a,ab}*", `\a`, "[ab]", "[a-c]*", "{a,b/c}", "{a/b,*}"}
	asked, matched := 0, 0
	for range 150_000 {
		pattern := pick(r, parts...)
		for range r.IntN(4) {
			pattern += pick(r, "/", "/", "/**/") + pick(r, parts...)
		}
		if strings.HasSuffix(pattern, "a") && r.IntN(2) == 0 {
			pattern += "/**" // after a *, doublestar's ** does not match the empty path
		}
		if r.IntN(4) == 0 {
			pattern = "**/" + pattern
		}
		rel := join(r, []string{"a", "b", "c", "/", "/"})
		if !isRel(rel) {
			continue
		}
		asked++
		want := doublestar.MatchUnvalidated(pattern, rel)
		require.Equal(t, want, matches(pattern, rel), "%q, %q", pattern, rel)
		if want {
			matched++
		}
	}
	require.Greater(t, matched, asked/20)
}

func FuzzPatterns(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 500 {
		f.Add(join(r, patternPieces), "a/b/c")
	}
	f.Fuzz(func(t *testing.T, pattern, rel string) {
		if len(pattern) > 40 || len(rel) > 12 || !utf8.ValidString(pattern) || Invalid(pattern) != "" || len(Expand(pattern)) > 100 || !isRel(rel) {
			return
		}
		checkPattern(t, pattern, rel)
	})
}

// Paths that doublestar's own Match judges differently, or that were once pruned by mistake.
func TestPatterns(t *testing.T) {
	for _, tc := range []struct {
		pattern, yes, no string // paths
	}{
		{"a[!x]b", "ayb a.b a-b", "a/b axb ab"},
		{"a[.-0]b", "a.b a0b", "a/b a1b"},
		{"a[/]b", "", "a/b ab"},
		{"a[!/]b", "axb", "a/b"},
		{"[c-a]", "c", "a b"},
		{"[!a]/b", "b/b", "a/b b/a a//b"},
		{"a[^x]{b,c}", "a.b a-c", "a/b a/c axb"},
		{`a[.-\0]b`, "a.b a0b", "a/b"},
		{"{a,b/c}/d", "a/d b/c/d", "b/d a/c/d"},
		{"{a,b/{c,d/e}}", "a b/c b/d/e", "b b/d b/e"},
		{"{,sub/}*.go", "x.go sub/x.go", "a/x.go sub/a/x.go"},
		{"{,**/}x", "x a/x a/b/x", "y"},
		{"a/{**,b}/c", "a/c a/x/c a/x/y/c a/b/c", "c a"},
		{"a/[,]{b[,],c}", "a/,b, a/,c", "a/b a/,b"},
		{"{a[}],b}", "a} b", "a a]"},
		{`\{a,b\}`, "{a,b}", "a b"},
		{`a\/b`, "a/b", "ab"},
		{`**\/a`, "a b/a", "b"},
		{`a\/**`, "a a/b a/b/c", "b"},
		{"a/**/**", "a a/b a/b/c", "b"},
		{"a/**/**/b", "a/b a/x/b", "a"},
		{"**/**", "a a/b", ""},
		{"a***", "a ab", "a/b"},
		{"a**/b", "a/b ax/b", "a/x/b b"},
		{"***/b", "a/b", "b a/a/b"},
		{`\**`, "* *a", "a ab"},
		{"*a*{b,c}", "ab xaxc", "a/b"},
		{"**/a/**/b", "a/b x/a/y/b a/a/b a/b/b", "a b a/b/c"},
	} {
		for rel := range strings.FieldsSeq(tc.yes) {
			require.True(t, checkPattern(t, tc.pattern, rel), "%q, %q", tc.pattern, rel)
		}
		for rel := range strings.FieldsSeq(tc.no) {
			require.False(t, checkPattern(t, tc.pattern, rel), "%q, %q", tc.pattern, rel)
		}
	}
}

// A directory is opened only if a path in it could match.
func TestPatternsReach(t *testing.T) {
	for _, tc := range []struct {
		pattern, yes, no string // directories
	}{
		{"a", "", "a b"},
		{"a/b/c", "a a/b", "b a/c a/b/c"},
		{"{docs,src}/*.md", "docs src", "a docs/a"},
		{"{docs,src/go}/*/*.md", "docs src docs/a src/go src/go/a", "a src/rs docs/a/b src/go/a/b"},
		{"src/**/*.{go,md}", "src src/a src/a/b", "docs"},
		{"[ab]/[!x]/f", "a b a/a b/.", "c a/x a/a/a"},
		{"a[/]b/c", "", "a a/b"},
		{"**/f", "a a/b f f/g", ""},
		{"a/**", "a a/b", "b"},
	} {
		for dir := range strings.FieldsSeq(tc.yes) {
			require.True(t, reaches(tc.pattern, dir), "%q, %q", tc.pattern, dir)
		}
		for dir := range strings.FieldsSeq(tc.no) {
			require.False(t, reaches(tc.pattern, dir), "%q, %q", tc.pattern, dir)
		}
	}
}

func TestPatternAlternatives(t *testing.T) {
	most := strings.Repeat("{a,b}", 16)
	require.Empty(t, Invalid(most))
	require.Len(t, Expand(most), maxAlternatives)
	for _, pattern := range []string{most + "{a,b}", strings.Repeat("{a,b}", 500)} {
		require.Contains(t, Invalid(pattern), "more than 65536 patterns")
	}
}

// A pattern full of stars, on a name that almost matches, takes polynomial time: only the last star is tried again.
func TestCatastrophicPatternsEnd(t *testing.T) {
	name := strings.Repeat("a", 4000)
	deep := strings.Repeat("a/", 1000) + "a"
	for _, tc := range []struct{ pattern, rel string }{
		{strings.Repeat("*a", 60) + "*b", name},
		{strings.Repeat("**/", 200) + strings.Repeat("*a", 60) + "*b", name},
		{strings.Repeat("**/a/", 60) + "b", deep},
		{strings.Repeat("**/*a*/", 60) + "*b", deep},
		{strings.Repeat("*[!b]", 60) + "b", name},
		{strings.Repeat("*?", 60) + "[b-z]", name},
	} {
		require.Empty(t, Invalid(tc.pattern))
		require.False(t, matches(tc.pattern, tc.rel), "%.40q", tc.pattern) // a star more would double an exponential time
		reaches(tc.pattern, tc.rel)
	}
	require.NotEmpty(t, Invalid(strings.Repeat("{a,b}", 20)), "2^20 alternatives")
	require.NotEmpty(t, Invalid(strings.Repeat("{", 10_000)+"a"+strings.Repeat("}", 9_999)))
}
