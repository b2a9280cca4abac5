package fileproc

import (
	"os"
	"testing"
	"time"
)

// FILEPROC_TEST_COLD=1 runs every test in the cold mode.
var coldByEnvironment = os.Getenv("FILEPROC_TEST_COLD") == "1"

func init() {
	// On a busy machine any call is slow, and no test may depend on that.
	slowCall = time.Hour
	alwaysCold = coldByEnvironment
}

// SlowFrom sets the duration from which a call counts as slow, until the test has ended.
func SlowFrom(t *testing.T, d time.Duration) {
	was := slowCall
	slowCall = d
	t.Cleanup(func() { slowCall = was })
}

// NotInColdMode skips a test that says nothing if FILEPROC_TEST_COLD keeps every run in the cold mode, because of why.
func NotInColdMode(t *testing.T, why string) {
	if coldByEnvironment {
		t.Skip("FILEPROC_TEST_COLD: " + why)
	}
}

// AlwaysCold keeps every run in the cold mode, until the test has ended.
func AlwaysCold(t *testing.T) {
	alwaysCold = true
	t.Cleanup(func() { alwaysCold = coldByEnvironment })
}

// NameWindow sets the bytes of a window of names for the rest of the test.
func NameWindow(t *testing.T, bytes int) {
	was := maxNameWindow
	maxNameWindow = bytes
	t.Cleanup(func() { maxNameWindow = was })
}

// ForgetRefusals forgets which calls the kernel has refused, which a run remembers for the next.
var ForgetRefusals = func() {} // unless the backend has some
