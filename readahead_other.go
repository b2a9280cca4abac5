//go:build !linux || fileproc_unix || fileproc_generic

package fileproc

import "github.com/fileproc/fileproc/internal/names"

func newCallGroup(int64, bool) (groupReader, int) { return nil, 0 }

func canPrefetch(directory) bool { return false }

func prefetch(directory, []names.Name, int64, func() bool) {}
