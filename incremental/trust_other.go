//go:build !linux && !darwin && !freebsd

package incremental

import "os"

// keepsTimes reports whether metadata shows each change of a file. Without the type
// of the file system, or without ctime, that is unknown.
func keepsTimes(string) bool { return false }

func bootName() string { return "" }

func fileKeepsTimes(*os.File) bool { return false }
