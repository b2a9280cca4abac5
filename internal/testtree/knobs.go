package testtree

import (
	"os"
	"testing"
)

// Cold says that every test runs in the cold mode, because FILEPROC_TEST_COLD is 1.
var Cold = os.Getenv("FILEPROC_TEST_COLD") == "1"

// NotInColdMode skips a test if FILEPROC_TEST_COLD keeps every run in the cold mode. why says why the test
// proves nothing then.
func NotInColdMode(tb testing.TB, why string) {
	if Cold {
		tb.Helper()
		tb.Skip("FILEPROC_TEST_COLD: " + why)
	}
}

// Set sets a variable of package knobs until the end of the test.
func Set[T any](tb testing.TB, knob *T, value T) {
	was := *knob
	*knob = value
	tb.Cleanup(func() { *knob = was })
}
