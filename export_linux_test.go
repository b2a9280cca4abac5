//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import "time"

// On a busy machine a group of calls is slow for other reasons than a disk, and no test may depend on that.
func init() { callPatience = time.Hour }
