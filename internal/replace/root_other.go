//go:build !unix

package replace

import (
	"errors"
	"os"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// InRoot is not supported: a rename over another file is not atomic here.
func InRoot(*os.Root, *os.File, names.Name, []byte, Check, bool) (sys.Stat, error) {
	return sys.Stat{}, &sys.Error{Op: "replace", Err: errors.ErrUnsupported}
}

func RemoveIn(*os.Root, names.Name) error { return nil }
