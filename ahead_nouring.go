//go:build !linux || android || fileproc_unix || fileproc_generic || fileproc_nouring

package fileproc

func newRingAhead(int64) readAhead { return nil }
