//go:build race

package sys

// Race says that borrowed buffers are overwritten when fn returns, so that
// a test run under the race detector sees a slice that was kept.
const Race = true
