package main

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The lines that a matcher finds are those that regexp finds, for random expressions and random lines.
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
		text := b.String()
		options := matchOptions{ignoreCase: r.IntN(3) == 0, line: r.IntN(8) == 0}
		m, err := newMatcher([]string{pattern}, options)
		require.NoError(t, err)

		reference := "(?:" + pattern + ")"
		if options.line {
			reference = "^" + reference + "$"
		}
		if options.ignoreCase {
			reference = "(?i)" + reference
		}
		re := regexp.MustCompile(reference)
		var want, got []string
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); re.MatchString(line) {
				want = append(want, line)
			}
		}
		var f lineFinder
		f.reset(m, []byte(text))
		switch {
		case f.slow:
			used["slow"]++
		case m.window != nil:
			used["window"]++
		case m.exact:
			used["exact literals"]++
		case m.literals != nil:
			used["literals"]++
		default:
			used["dfa"]++
		}
		for pos := 0; ; {
			begin, end, ok := f.find(pos)
			if !ok {
				break
			}
			got = append(got, text[begin:end])
			pos = end + 1
		}
		require.Equal(t, want, got, "seed %d, %q, text %q", seed, reference, text)
	}
	for _, by := range []string{"slow", "window", "exact literals", "literals", "dfa"} {
		require.Greater(t, used[by], 100, "%s is hardly tested: %v", by, used)
	}
}

// An expression with more states than are kept finds the same.
func TestDFAForgetsStates(t *testing.T) {
	m, err := newMatcher([]string{"a[ab]{14}c"}, matchOptions{})
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 200_000)
	for i := range text {
		text[i] = "aabb"[r.IntN(4)]
	}
	text = append(text, "aaaaaaaaaaaaaaaac\n"...)
	var f lineFinder
	f.reset(m, text)
	_, end, ok := f.find(0)
	require.True(t, ok)
	require.Equal(t, len(text)-1, end)
	require.LessOrEqual(t, len(f.dfa.states), maxStates)
}
