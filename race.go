//go:build race

package fileproc

// poisoned says that borrowed buffers are overwritten when fn returns, so that
// a test run under the race detector sees a slice that was kept.
const poisoned = true
