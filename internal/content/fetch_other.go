//go:build !linux || fileproc_unix || fileproc_generic

package content

import "sync"

func newCallGroup(int64, bool, bool) (groupReader, int) { return nil, 0 }

func newWindowReader(Want, bool, sync.Locker) WindowReader { return nil }
