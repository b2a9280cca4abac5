//go:build !linux && !darwin && !freebsd

package fsinfo

import "os"

// KeepsTimes reports whether metadata shows each change of a file. It returns false: this system tells no
// type of a file system, or no ctime, so the answer is unknown.
func KeepsTimes(string) (bool, error) { return false, nil }

// FileKeepsTimes is KeepsTimes for an open file.
func FileKeepsTimes(*os.File) bool { return false }

// BootName returns a text that is different for each boot of the machine, "" if there is none.
func BootName() string { return "" }

// HasFineTimes is not known here.
func HasFineTimes(*os.File) bool { return false }
