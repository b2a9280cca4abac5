//go:build !linux && !darwin && !freebsd

package fsinfo

import "os"

// KeepsTimes reports whether metadata shows each change of a file. Without the type
// of the file system, or without ctime, that is unknown.
func KeepsTimes(string) (bool, error) { return false, nil }

// FileKeepsTimes is KeepsTimes for an open file.
func FileKeepsTimes(*os.File) bool { return false }

// BootName returns a text that no two boots of the machine share, "" if there is none.
func BootName() string { return "" }
