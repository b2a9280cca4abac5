package incremental

import "errors"

var errNoLocks = errors.ErrUnsupported
