//go:build linux && !(amd64 || arm64 || ppc64le || riscv64 || s390x) && !fileproc_unix && !fileproc_generic

package sys

const (
	FstatatCall = 0
	FstatCall   = 0
)
