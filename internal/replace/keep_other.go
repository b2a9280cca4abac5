//go:build aix || solaris

package replace

import "github.com/fileproc/fileproc/internal/sys"

func keepFlags(int, int, sys.Stat, sys.Stat) error { return nil }
