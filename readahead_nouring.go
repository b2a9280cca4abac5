//go:build !linux || android || fileproc_unix || fileproc_generic || fileproc_nouring

package fileproc

func newRingGroup(int64) groupReader { return nil }
