package testtree

import "syscall"

// IsWine reports whether Windows is wine. Wine exports a function that returns its version.
func IsWine() bool {
	return syscall.NewLazyDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}
