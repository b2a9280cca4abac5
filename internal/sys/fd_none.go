//go:build fileproc_generic || !(aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package sys

const Backend = "generic"
