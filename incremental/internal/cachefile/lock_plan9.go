package cachefile

import "errors"

var errNoLocks = errors.ErrUnsupported
