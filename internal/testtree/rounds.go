package testtree

import (
	"fmt"
	"os"
	"testing"
)

// Takes reports whether a test makes the i-th of many similar cases: with -short, it makes one in four.
func Takes(i int) bool { return !testing.Short() || i%4 == 0 }

// Rounds returns how often a test repeats what it does: as often as the variable says,
// else n times, or a sixth of that with -short.
func Rounds(tb testing.TB, variable string, n int) int {
	tb.Helper()
	if testing.Short() {
		n = (n + 5) / 6
	}
	if s := os.Getenv(variable); s != "" {
		if _, err := fmt.Sscan(s, &n); err != nil {
			tb.Fatal(variable, ": ", err)
		}
	}
	return n
}
