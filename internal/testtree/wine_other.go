//go:build !windows

package testtree

// IsWine reports whether Windows is wine.
func IsWine() bool { return false }
