package report

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/measure"
)

// The number of a bar that ends left of the line at 1 is right of it, and a bar without a value has none.
func TestBarsNumbersAreOffTheLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.svg")
	require.NoError(t, bars{title: "t", unit: "u", names: []string{"a", "b"}, kinds: []string{"k", "missing"}, label: "%.2f", one: "one",
		value: func(name, kind string) (measure.Spread, bool) {
			return measure.Spread{Median: 0.97, Min: 0.9, Max: 0.98}, name == "a" && kind == "k"
		}}.save(file))
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	x := func(expr string) float64 {
		match := regexp.MustCompile(expr).FindAllStringSubmatch(string(svg), -1)
		require.NotEmpty(t, match, expr)
		v, err := strconv.ParseFloat(match[0][1], 64)
		require.NoError(t, err)
		return v
	}
	assert.Greater(t, x(`<text x="([\d.]+)"[^>]*>0\.97<`), x(`M([\d.]+),[\d.]+L[\d.]+,[\d.]+" style="[^"]*stroke-dasharray`))
	assert.NotContains(t, string(svg), ">0.00<")
}
