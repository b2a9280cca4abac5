//go:build !unix || android

package testtree

import "errors"

func mkfifo(string) error { return errors.ErrUnsupported }
