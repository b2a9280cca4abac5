//go:build !linux || fileproc_unix || fileproc_generic

package fileproc

func newCallGroup(int64, bool, bool) (groupReader, int) { return nil, 0 }

func newWindowReader(*config) windowReader { return nil }

func isOnDisk(directory) bool { return false }
