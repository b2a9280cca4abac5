//go:build aix || linux || solaris

package sys

func flagsOf(any) uint32 { return 0 }
