//go:build !unix || aix || solaris

package incremental_test

import "errors"

func makeFIFO(string) error { return errors.ErrUnsupported }
