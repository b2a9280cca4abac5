//go:build race

package sys

// Race says that borrowed buffers are overwritten when fn returns, so that
// a test under the race detector notices a slice that fn has kept.
const Race = true
