//go:build !linux || fileproc_unix || fileproc_generic

package fileproc

func newCallAhead(int64) (readAhead, int) { return nil, 0 }
