//go:build !linux || fileproc_unix || fileproc_generic

package fileproc

func newCallAhead(int64, bool) (readAhead, int) { return nil, 0 }
