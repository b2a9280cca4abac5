package testtree

import (
	"fmt"
	"os"
	"testing"
)

// Rounds returns how often a test repeats what it does: as often as the variable says,
// else n times, or a third of that with -short.
func Rounds(tb testing.TB, variable string, n int) int {
	tb.Helper()
	if testing.Short() {
		n = (n + 2) / 3
	}
	if s := os.Getenv(variable); s != "" {
		if _, err := fmt.Sscan(s, &n); err != nil {
			tb.Fatal(variable, ": ", err)
		}
	}
	return n
}
