//go:build !unix && !windows

package sys

import "time"

// ProcessorTime returns how much time has passed: this system does not say how much of it this process has taken.
func ProcessorTime() time.Duration { return time.Since(begun) }
