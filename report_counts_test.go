package fileproc

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// There is room to count every SkipReason that report.go declares, in whatever order they are met.
func TestCountsOfEverySkipReason(t *testing.T) {
	if _, err := os.Stat("report.go"); err != nil {
		t.Skip("the tests run without their source: ", err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "report.go", nil, 0)
	require.NoError(t, err)
	var all []SkipReason
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Skipped") {
			all = append(all, SkipReason(v.Values[0].(*ast.BasicLit).Value))
		}
		return true
	})
	require.NotEmpty(t, all)
	var one, other, sum counts
	for i, why := range all {
		one.skip(why, 0)
		one.skip(why, int64(i+1))
		other.skip(all[len(all)-1-i], 100)
		other.skip(all[len(all)-1-i], 0)
	}
	sum.add(&one)
	sum.add(&other)
	want := map[SkipReason]int64{}
	for i, why := range all {
		want[why] = int64(i + 101)
	}
	require.Equal(t, want, newReport(sum, 0).Skipped)
}
