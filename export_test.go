package fileproc

import (
	"testing"
	"time"
)

// On a busy machine any call is slow, and no test may depend on that.
func init() { slowCall = time.Hour }

// SlowFrom sets the duration from which a call counts as slow, until the test has ended.
func SlowFrom(t *testing.T, d time.Duration) {
	was := slowCall
	slowCall = d
	t.Cleanup(func() { slowCall = was })
}
