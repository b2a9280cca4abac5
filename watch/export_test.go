package watch

import (
	"time"

	"github.com/fileproc/fileproc/internal/fsinfo"
)

// Files settle soon: after more than a step of the clock of the file systems that the tests run on.
func init() { fsinfo.Settled = 50 * time.Millisecond }
