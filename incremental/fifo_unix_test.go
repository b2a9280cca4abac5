//go:build unix && !aix && !solaris

package incremental_test

import "golang.org/x/sys/unix"

func makeFIFO(name string) error { return unix.Mkfifo(name, 0o644) }
