package search

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
)

// checkMatcher compares the lines that a matcher finds, and the matches in each, with what regexp alone finds.
func checkMatcher(t *testing.T, pattern, text string, o matchOptions) (*matcher, *lineFinder) {
	_, patternErr := regexp.Compile(pattern)
	m, err := newMatcher([]string{pattern}, o)
	if errors.Is(err, errNewline) {
		return nil, nil
	}
	require.Equal(t, patternErr != nil, err != nil, "%q: %v, %v", pattern, err, patternErr)
	reference := pattern
	if o.ignoreCase {
		reference = "(?i:" + reference + ")"
	}
	switch {
	case o.line:
		reference = "^(?:" + reference + ")$"
	case o.word:
		reference = "(?:^|" + nonWord + ")(" + reference + ")(?:$|" + nonWord + ")"
	}
	re, referenceErr := regexp.Compile(reference)
	if err != nil || referenceErr != nil {
		return nil, nil // \Q quotes what reference adds
	}
	var f lineFinder
	f.reset(m, []byte(text))
	begin, end := f.find(0)
	for pos, line := range lines(text) {
		want := re.MatchString(line)
		require.Equal(t, want, begin == pos, "%q, %+v: line %q of %q", pattern, o, line, text)
		if !want {
			continue
		}
		require.Equal(t, line, text[begin:end])
		got := m.matches([]byte(line))
		if o.word {
			requireWords(t, re, line, got)
		} else {
			require.Equal(t, re.FindAllStringIndex(line, -1), got, "%q, %+v: matches in %q", pattern, o, line)
		}
		begin, end = f.find(end + 1)
	}
	require.Equal(t, len(text), begin)
	return m, &f
}

// lines yields the offset and the text of each line, without its newline.
func lines(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		pos := 0
		for line := range strings.Lines(text) {
			if !yield(pos, strings.TrimSuffix(line, "\n")) {
				return
			}
			pos += len(line)
		}
	}
}

var endsNoWord, beginsNoWord = regexp.MustCompile("(?:^|" + nonWord + ")$"), regexp.MustCompile("^(?:$|" + nonWord + ")")

// requireWords checks matches of -w: the first is that of re, none overlap, and none is next to a part of a word.
func requireWords(t *testing.T, re *regexp.Regexp, line string, got [][]int) {
	require.NotEmpty(t, got)
	require.Equal(t, re.FindStringSubmatchIndex(line)[2:4], got[0])
	end := 0
	for _, at := range got {
		require.LessOrEqual(t, end, at[0])
		require.LessOrEqual(t, at[0], at[1])
		require.Regexp(t, endsNoWord, line[:at[0]])
		require.Regexp(t, beginsNoWord, line[at[1]:])
		end = at[1]
	}
}

// matchOptionsOf maps bits to the combinations that the command allows.
func matchOptionsOf(bits uint8) matchOptions {
	return matchOptions{ignoreCase: bits&1 != 0, word: bits&6 == 2, line: bits&6 == 4}
}

func FuzzMatcherAgreesWithRegexp(f *testing.F) {
	for _, pattern := range []string{"x+", "sock", "(?i:k)elvin", `\w+=\w+`, "foo|fo+", "(a|ab)(c|bcd)", `\Qa.b`, "^$", "a[^b]c", "�", "é+"} {
		f.Add(pattern, "xxx foo\nſoc\u212a a=b\nabcd\n\nÉ\xff", uint8(len(pattern)))
	}
	f.Fuzz(func(t *testing.T, pattern, text string, bits uint8) {
		checkMatcher(t, pattern[:min(len(pattern), 50)], text[:min(len(text), 500)], matchOptionsOf(bits))
	})
}

// Random expressions and lines, made of parts that have led to errors.
func TestMatcherAgreesWithRegexp(t *testing.T) {
	atoms := []string{
		"a", "b", "K", "s", "ab", "ba", "é", "ſ", ".", "[ab]", "[^a]", `\w`, `\W`, `\b`, `\B`, "^", "$", "(?i:ab)", "(?i:ks)", "-", "aab",
		`\pL`, "�", "(?i:É)", "x", "[0-9]{2}", `\d+=`, "(?i:[k-s])", "[ab]-", "=",
	}
	var expression func(r *rand.Rand, depth int) string
	expression = func(r *rand.Rand, depth int) string {
		if depth == 0 {
			return atoms[r.IntN(len(atoms))]
		}
		x, y := expression(r, depth-1), expression(r, r.IntN(depth))
		switch r.IntN(6) {
		case 0:
			return "(?:" + x + "|" + y + ")"
		case 1:
			return "(?:" + x + ")" + []string{"*", "+", "?", "{2}", "{0,2}", "{2,}"}[r.IntN(6)]
		case 2:
			return "(" + x + ")" + y
		default:
			return x + y
		}
	}
	letters := []string{"a", "b", "A", "B", "k", "K", "s", "S", "é", "É", "ſ", "\u212a", "-", " ", "\xff", "\n", "\n", "_", "ab", "aab", "\r", "�",
		"1", "23", "=", "x"}
	used := map[string]int{}
	for seed := range uint64(6000) {
		r := rand.New(rand.NewPCG(seed, 1))
		pattern := expression(r, r.IntN(4))
		var b strings.Builder
		for range r.IntN(120) {
			b.WriteString(letters[r.IntN(len(letters))])
		}
		m, f := checkMatcher(t, pattern, b.String(), matchOptionsOf(uint8(r.UintN(8))))
		switch {
		case len(m.literals) == 0:
			used["no literals"]++
		case f.slow:
			used["literals that do not hold"]++
		case m.exact:
			used["exact literals"]++
		case m.literals[0].fold:
			used["literals in either case"]++
		default:
			used["literals"]++
		}
	}
	require.Len(t, used, 5)
	for by, n := range used {
		require.Greater(t, n, 100, "%s: hardly tested", by)
	}
}

// What is looked for in a file is the longest text that all matches have, or one text for each alternative. If case does not matter, it is
// of ASCII, and its rarest letter is looked for in both cases.
func TestLiterals(t *testing.T) {
	for pattern, want := range map[string][]string{
		"a[0-9]longest[0-9]bc": {"longest"}, "ab.cd": {"ab"}, "größe": {"größe"}, "a\ufffdbcd\ufffdefg": {"bcd"}, "(ab)+": {"ab"}, "a*b?": nil, "a|b*": nil,
		"(abc|de)f": {"abc", "de"}, "(abc|d)ef": {"ef"}, "(ab|cd)ef": {"ef"}, ".": nil, "a{2,}": {"a"},
		"(?i)größe": {"GR/g", "GR/G"}, "(?i)\u0080ax": {"AX/x", "AX/X"}, "(?i)éü": nil, "(?i)a-": {"A-/-", "A-/-"}, "(?i)1a": {"1A/1", "1A/1"},
	} {
		m, err := newMatcher([]string{pattern}, matchOptions{})
		require.NoError(t, err)
		var got []string
		for _, l := range m.literals {
			if text := string(l.text); l.fold {
				got = append(got, text+"/"+string(l.c))
			} else {
				got = append(got, text)
			}
		}
		require.Equal(t, want, got, pattern)
	}
}

// A failing context has ended, as a file that cannot be read further, once it was asked so many times.
type failing struct {
	context.Context
	asked, at int
}

var errRead = errors.New("input/output error")

func (f *failing) Err() error {
	if f.asked++; f.asked > f.at {
		return errRead
	}
	return nil
}

// setInput makes standard input a file with this content.
func setInput(t *testing.T, content []byte) *os.File {
	f, err := os.Create(filepath.Join(t.TempDir(), "input"))
	require.NoError(t, err)
	was := os.Stdin
	t.Cleanup(func() { os.Stdin = was; f.Close() })
	os.Stdin = f
	_, err = f.Write(content)
	require.NoError(t, err)
	_, err = f.Seek(0, io.SeekStart)
	require.NoError(t, err)
	return f
}

// A read that fails, whichever it is, is a failure of the file: what has been found before that is not all.
func TestEachReadFails(t *testing.T) {
	large := setInput(t, bytes.Repeat([]byte("a line with a needle\nand one without\n"), 3*partSize/36))
	m, err := newMatcher([]string{"needle"}, matchOptions{})
	require.NoError(t, err)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	for name, g := range map[string]*grep{"print": {}, "count": {count: true}, "without": {listWithout: true}} {
		for at := 0; ; at++ {
			ctx := &failing{t.Context(), 0, at}
			r := &run.Run{Ctx: ctx, Out: output.New(null, null, func(err error) { t.Error(err) })}
			g.Run, g.m, g.maxCount = r, m, math.MaxInt64
			if g.listWithout {
				g.m, err = newMatcher([]string{"nothing"}, matchOptions{})
				require.NoError(t, err)
			}
			_, err = large.Seek(0, io.SeekStart)
			require.NoError(t, err)
			s, c := &searcher{grep: g}, &output.Chunk{}
			err := s.search(r.Input(), c)
			if ctx.asked <= at {
				require.NoError(t, err)
				require.Greater(t, at, 3)
				break
			}
			require.ErrorIs(t, err, errRead, "%s, read %d", name, at)
			if g.listWithout {
				require.Empty(t, c.B, "it is not known to be without")
			}
		}
	}
}

// A worker takes at most twice the memory of the longest line, rounded up to a power of two, also where it prints the line.
func TestMemoryOfALongLine(t *testing.T) {
	long := setInput(t, append(bytes.Repeat([]byte("a"), 60<<20), "needle\n"...))
	m, err := newMatcher([]string{"needle"}, matchOptions{})
	require.NoError(t, err)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	r := &run.Run{Ctx: t.Context(), Out: output.New(null, null, func(err error) { t.Error(err) })}
	for name, g := range map[string]*grep{
		"count": {count: true}, "print": {}, "only": {only: true}, "colors": {matchStyle: output.Style{On: "<", Off: ">"}},
	} {
		g.Run, g.m, g.maxCount = r, m, math.MaxInt64
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s := &searcher{grep: g}
		c := &output.Chunk{Out: r.Out}
		require.NoError(t, s.search(r.Input(), c))
		c.FileDone()
		runtime.ReadMemStats(&after)
		_, err = long.Seek(0, io.SeekStart)
		require.NoError(t, err)
		require.EqualValues(t, 1, s.selected)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*64<<20+8<<20), name)
	}
	require.NoError(t, r.Out.Flush()) // else a timer would
}
