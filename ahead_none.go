//go:build !linux || fileproc_unix || fileproc_generic

package fileproc

func newCallAhead(int64, bool) (readAhead, int) { return nil, 0 }

func canFetch(directory) bool { return false }

func fetch(directory, []string, int64, func() bool) {}
