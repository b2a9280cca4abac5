package pattern

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// folded are letters of several cases, some of which are more than two, or of other lengths in UTF-8.
var folded = []string{"a", "A", "b", "B", "k", "K", "\u212a", "s", "S", "ſ", "ß", "ẞ", "é", "É", "σ", "ς", "Σ", "ǆ", "ǅ", "Ǆ", "_", "[", "Z", "z"}

func TestFoldedPatternsAgainstReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	pieces := slices.Concat(patternPieces, folded, []string{"[A-C]", "[!K]", "[Z-a]", "[z-a]", "[k-s]", "[!à-ü]", "[-A]", "[Z-]", `[\-a]`, "[σ]", "[^ǅ]", `\K`, "*.Md", "[a-é]"})
	names := slices.Concat(folded, []string{"/", "/", "x", ".", "-", "c", "C", ".mD", "\xff"})
	asked, matched := 0, 0
	for range 200_000 {
		pattern, rel := join(r, pieces), join(r, names)
		if Invalid(pattern) != "" || !isRel(strings.ToValidUTF8(rel, "x")) {
			continue
		}
		asked++
		fold, path := Fold(pattern), string(AppendFold(nil, rel))
		want := reference{fold: true}.match(pattern, rel)
		require.Equal(t, want, matches(fold, path), "%q for %q, %q", fold, pattern, rel)
		for i := range path {
			if path[i] == '/' {
				require.True(t, !want || reaches(fold, path[:i]), "%q matches %q, but prunes %q", pattern, rel, path[:i])
			}
		}
		if want {
			matched++
		}
	}
	require.Greater(t, asked, 20_000)
	require.Greater(t, matched, asked/50)
}

func TestAppendFold(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		_, known := slices.BinarySearch(foldable(), r)
		require.Equal(t, fold(r) != r, known, "%U", r)
		if utf8.ValidRune(r) {
			require.Equal(t, string(fold(r)), string(AppendFold(nil, string(r))), "%U", r)
		}
	}
	for _, a := range folded {
		for _, b := range folded {
			require.Equal(t, strings.EqualFold(a, b), string(AppendFold(nil, a)) == string(AppendFold(nil, b)), "%q, %q", a, b)
		}
	}
	require.Equal(t, "\xffA\xe2\x84\ufffd", string(AppendFold(nil, "\xffa\xe2\x84\ufffd")))
	buf := make([]byte, 0, 100)
	require.Zero(t, testing.AllocsPerRun(100, func() { AppendFold(buf, "Some/Path of ÄÖÜ.Txt") }))
}
