//go:build !(js || unix || windows)

package replace

import (
	"errors"
	"os"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// InRoot is not supported: Plan 9 cannot rename a file to a name that exists, and WASI has no modes, which would be lost.
func InRoot(*os.Root, *os.File, names.Name, []byte, Check, bool) (sys.Stat, error) {
	return sys.Stat{}, &sys.Error{Op: "replace", Err: errors.ErrUnsupported}
}

func RemoveIn(*os.Root, names.Name) error { return nil }
