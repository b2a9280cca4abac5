//go:build !unix && !windows

package sys

import "time"

// ProcessorTime returns the elapsed time: this system does not report the processor time of a process.
func ProcessorTime() time.Duration { return time.Since(begun) }
