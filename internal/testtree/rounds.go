package testtree

import (
	"fmt"
	"os"
	"testing"
)

// Takes reports whether a test runs the i-th of many similar cases. With -short, a test runs one in four.
func Takes(i int) bool { return !testing.Short() || i%4 == 0 }

// Rounds returns how often a test repeats its work: as often as the environment variable says,
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
